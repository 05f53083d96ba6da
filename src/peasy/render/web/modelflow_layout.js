// Layout of a forward pass: where each token, layer and head of a model is drawn. Data in, positions out.
//
// An encoder-decoder has two bands, the decoder below and to the right, so that cross-attention runs forward.

import { clamp, indices } from "./numbers.js";

const HEADER = 76; // above the rows: names of the layers and maps of their heads
const FOOTER = 52; // below the rows: names of the parts, what the model would say after a layer
const STRIP = 56; // width of the first numbers of a vector
const MLP = { closed: 36, open: 84 };
const GAP = 14;
const MAP = { largest: 44, smallest: 13 };
const RECURRENT = 48; // width of the arrows from one state to the next
const NUM_NEXT = 8;
const MANY_LAYERS = 6; // of more than these, only the open one shows its feed-forward network
const COMPACT_GAP = 6;
const [WIDE_LABEL, NARROW_LABEL] = [110, 90];
const SMALLEST = { closed: 62, open: 170, next: 210 }; // widths of an attention, where rows mix, and of the next tokens
const LARGEST = { closed: 150, open: 520, next: 340 };
const NARROW = { closed: 190, open: 190 };

const BAR_HEIGHT = 26;

/**
 * Positions of everything in a forward pass: `{width, height, rowHeight, bands, bars}`. `open` is the opened layer as
 * `{stack, layer}`, `size` the height that is wanted for all rows, `room` the width to fill.
 */
export function layOut(pass, view) {
	if (view.narrow) return layOutWith(pass, view, NARROW);
	const smallest = layOutWith(pass, view, SMALLEST);
	const layers = smallest.bands.flatMap((band) => band.layers);
	const count = (isOpen) =>
		layers.filter((layer) => layer.isOpen === isOpen).reduce((sum, layer) => sum + layer.attentions.length, 0);
	const spare = Math.max(0, (view.room ?? 0) - smallest.width);
	const grown = (name, share, number) =>
		Math.min(LARGEST[name], SMALLEST[name] + (spare * share) / Math.max(1, number));
	return layOutWith(pass, view, {
		next: grown("next", 0.15, 1),
		closed: grown("closed", 0.3, count(false)),
		open: grown("open", 0.55, count(true)),
	});
}

function layOutWith(pass, { open, size = 460, narrow = false, labelWidth = 92, hasBars }, widths) {
	const pieces = pass.stacks.flatMap(({ tokens }) => tokens.pieces);
	const between = (pass.stacks.length - 1) * (HEADER + FOOTER);
	const least = clamp((narrow ? 1600 : 1100) / pieces.length, 6, 20); // a longer picture is scrolled
	const rowHeight = clamp((size - between) / pieces.length, least, 44);
	const letters = Math.max(...pieces.map((piece) => piece.length));
	const sizes = { ...widths, label: clamp(26 + 7.2 * letters, 56, narrow ? NARROW_LABEL : WIDE_LABEL) };
	const bands = [];
	for (const stack of pass.stacks) {
		const before = bands.at(-1);
		const left = before && !narrow ? Math.max(0, before.end - sizes.label - STRIP - sizes.closed) : 0;
		const top = before ? before.bottom + FOOTER + 12 : 0;
		bands.push(layOutBand(stack, { left, top, rowHeight, open, narrow, sizes }));
	}
	const last = bands.at(-1);
	const barsHeight = !narrow && (hasBars ?? pass.next_tokens.length > 0) ? NUM_NEXT * BAR_HEIGHT : 0;
	const answerEnd = last.lastY(pass.answer_row) + rowHeight / 2;
	const bars = {
		left: last.end + 18,
		top: clamp(answerEnd - barsHeight, last.top + 30, last.top + HEADER + size - barsHeight) - 26,
		width: sizes.next + labelWidth - 92,
		labelWidth,
	};
	return {
		rowHeight,
		narrow,
		bands,
		bars,
		barsBottom: bars.top + 26 + barsHeight,
		width: narrow ? Math.max(...bands.map(({ end }) => end)) : bars.left + (barsHeight ? bars.width : 20),
		height: Math.max(last.bottom + FOOTER, narrow ? 0 : bars.top + barsHeight + 34),
	};
}

function layOutBand(stack, { left, top, rowHeight, open, narrow, sizes }) {
	const numTokens = stack.tokens.pieces.length;
	const header = stack.layers.length ? HEADER : 26;
	const rowsAt = (start) => ({
		top: start,
		bottom: start + header + numTokens * rowHeight,
		y: (row) => start + header + (row + 0.5) * rowHeight,
	});
	const isCompact = !narrow && stack.layers.length > MANY_LAYERS;
	let place = rowsAt(top);
	const labelWidth = sizes.label + (stack.recurrent ? RECURRENT : 0);
	let x = left + labelWidth;
	const first = { left, labelWidth: sizes.label, ...place };
	const strip = stack.embedding.length ? { left: x, width: STRIP } : null;
	if (strip) x += STRIP + GAP;
	let end = x;
	const layers = stack.layers.map((layer, index) => {
		if (narrow && index) {
			place = rowsAt(place.bottom + FOOTER);
			x = left + labelWidth;
		}
		const isOpen = open?.stack === stack.name && open?.layer === layer.layer;
		const begin = x;
		const gap = isCompact && !isOpen ? COMPACT_GAP : GAP;
		const attentions = layer.attentions.map((attention) => {
			const width = (isOpen ? sizes.open : sizes.closed) / (narrow ? layer.attentions.length : 1);
			const heads = layOutHeads(attention.num_heads, x, width, place.top + 24);
			const mix = { ...attention, left: x, width, heads };
			x += width + gap;
			return mix;
		});
		const mlp =
			layer.added.feedforward && (isOpen || !isCompact) ? { left: x, width: isOpen ? MLP.open : MLP.closed } : null;
		if (mlp) x += mlp.width + GAP;
		end = Math.max(end, x);
		return {
			...layer,
			...place,
			isOpen,
			left: begin,
			width: x - begin - gap,
			isCompact: isCompact && !isOpen,
			attentions,
			mlp,
			isNewLine: narrow && index > 0,
		};
	});
	const final = stack.final.length && !layers.length ? { left: x, width: STRIP } : null;
	if (final) end = Math.max(end, x + STRIP + GAP);
	return {
		...first,
		stack,
		name: stack.name,
		numTokens,
		header,
		strip,
		layers,
		final,
		end,
		bottom: place.bottom,
		lastY: place.y,
	};
}

// Maps of the heads in rows above their attention; as large as fits, and never smaller than can be clicked.
function layOutHeads(count, left, width, top) {
	let side = MAP.largest;
	const columnsOf = () => Math.max(1, Math.floor((width + 3) / (side + 3)));
	while (side > MAP.smallest && Math.ceil(count / columnsOf()) * (side + 3) > HEADER - 26) side -= 1;
	const columns = columnsOf();
	return indices(count).map((head) => ({
		left: left + (head % columns) * (side + 3),
		top: top + Math.floor(head / columns) * (side + 3),
		side,
	}));
}
