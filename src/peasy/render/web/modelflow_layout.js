// Layout of a forward pass: where each token, layer and head of a model is drawn. Data in, positions out.
//
// Tokens are rows and the layers follow from left to right; on a narrow screen each layer is below the one before. An
// encoder-decoder has two bands: the encoder above, the decoder below it and to the right, so that cross-attention
// runs forward.

import { clamp, indices } from "./numbers.js";

const HEADER = 76; // above the rows: names of the layers and maps of their heads
const FOOTER = 40; // below the rows: what the model would say after a layer
const STRIP = 52; // width of the first numbers of a vector
const MLP = 46;
const GAP = 14;
const NEXT = 250; // width of the next tokens
const MAP = { largest: 44, smallest: 13 };
const NUM_NEXT = 8;
const WIDE = { label: 96, closed: 92, open: 230 }; // widths of the tokens and of one attention, where rows mix
const NARROW = { label: 84, closed: 190, open: 190 };

export const BAR_HEIGHT = 26;

/**
 * Positions of everything in a forward pass: `{width, height, rowHeight, bands, bars}`. `open` is the opened layer as
 * `{stack, layer}`, `size` the height that is wanted for all rows.
 */
export function layOut(pass, { open, size = 460, narrow = false }) {
	const longest = Math.max(...pass.stacks.map(({ tokens }) => tokens.pieces.length));
	const rowHeight = clamp(size / longest, 5, 32);
	const bands = [];
	for (const stack of pass.stacks) {
		const before = bands.at(-1);
		const left = before && !narrow ? Math.max(0, before.end - WIDE.label - STRIP) : 0;
		const top = before ? before.bottom + FOOTER + 18 : 0;
		bands.push(layOutBand(stack, { left, top, rowHeight, open, narrow }));
	}
	const last = bands.at(-1);
	const barsHeight = pass.next_tokens.length ? NUM_NEXT * BAR_HEIGHT : 0;
	const bars = narrow
		? { left: 0, top: last.bottom + FOOTER + 30, width: NEXT }
		: { left: last.end + 18, top: Math.max(last.top + 30, last.bottom - barsHeight), width: NEXT };
	return {
		rowHeight,
		narrow,
		bands,
		bars,
		width: narrow ? Math.max(...bands.map(({ end }) => end)) : bars.left + (barsHeight ? NEXT : 20),
		height: Math.max(last.bottom + FOOTER, bars.top + barsHeight + 8),
	};
}

function layOutBand(stack, { left, top, rowHeight, open, narrow }) {
	const sizes = narrow ? NARROW : WIDE;
	const numTokens = stack.tokens.pieces.length;
	const header = stack.layers.length ? HEADER : 26;
	const rowsAt = (start) => ({
		top: start,
		bottom: start + header + numTokens * rowHeight,
		y: (row) => start + header + (row + 0.5) * rowHeight,
	});
	let place = rowsAt(top);
	let x = left + sizes.label;
	const first = { left, labelWidth: sizes.label, ...place };
	const strip = stack.embedding.length ? { left: x, width: STRIP } : null;
	if (strip) x += STRIP + GAP;
	let end = x;
	const layers = stack.layers.map((layer, index) => {
		if (narrow && index) {
			place = rowsAt(place.bottom + FOOTER);
			x = left + sizes.label;
		}
		const isOpen = open?.stack === stack.name && open?.layer === layer.layer;
		const begin = x;
		const attentions = layer.attentions.map((attention) => {
			const width = isOpen ? sizes.open : sizes.closed;
			const heads = layOutHeads(attention.num_heads, x, width, place.top + 24);
			const mix = { ...attention, left: x, width, heads };
			x += width + GAP;
			return mix;
		});
		const mlp = layer.added.feedforward ? { left: x, width: MLP } : null;
		if (mlp) x += MLP + GAP;
		end = Math.max(end, x);
		return {
			...layer,
			...place,
			isOpen,
			left: begin,
			width: x - begin - GAP,
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
