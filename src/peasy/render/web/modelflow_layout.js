// Layout of a forward pass: where each token, layer and head of a model is drawn. Data in, positions out.
//
// Tokens are rows and the layers follow from left to right. An encoder-decoder has two bands: the encoder above, the
// decoder below it and to the right, so that cross-attention runs forward.

import { clamp, indices } from "./numbers.js";

const HEADER = 76; // above the rows: names of the layers and maps of their heads
const FOOTER = 40; // below the rows: what the model would say after a layer
const LABEL = 96; // width of the tokens
const STRIP = 52; // width of the first numbers of a vector
const MIX = { closed: 104, open: 250 }; // width of one attention, where rows mix
const MLP = 46;
const GAP = 14;
const NEXT = 250; // width of the next tokens
const MAP = { largest: 44, smallest: 13 };

/**
 * Positions of everything in a forward pass: `{width, height, bands, bars}`. `open` is the opened layer as
 * `{stack, layer}`, `size` the height that is wanted for all rows.
 */
export function layOut(pass, { open, size = 460 }) {
	const longest = Math.max(...pass.stacks.map(({ tokens }) => tokens.pieces.length));
	const rowHeight = clamp(size / longest, 5, 32);
	const bands = [];
	for (const stack of pass.stacks) {
		const before = bands.at(-1);
		const left = before ? Math.max(0, before.end - LABEL - STRIP) : 0;
		const top = before ? before.bottom + FOOTER + 18 : 0;
		bands.push(layOutBand(pass, stack, { left, top, rowHeight, open }));
	}
	const last = bands.at(-1);
	const barsLeft = last.end + 18;
	return {
		rowHeight,
		bands,
		bars: { left: barsLeft, top: Math.max(last.top, last.y(last.numTokens - 1) - 120), width: NEXT },
		width: barsLeft + NEXT,
		height: last.bottom + FOOTER,
	};
}

function layOutBand(pass, stack, { left, top, rowHeight, open }) {
	const numTokens = stack.tokens.pieces.length;
	const header = stack.layers.length ? HEADER : 26;
	const y = (row) => top + header + (row + 0.5) * rowHeight;
	let x = left + LABEL;
	const strip = stack.embedding.length ? { left: x, width: STRIP } : null;
	if (strip) x += STRIP + GAP;
	const layers = stack.layers.map((layer) => {
		const isOpen = open?.stack === stack.name && open?.layer === layer.layer;
		const begin = x;
		const attentions = layer.attentions.map((attention) => {
			const width = isOpen ? MIX.open : MIX.closed;
			const mix = { ...attention, left: x, width, heads: layOutHeads(attention.num_heads, x, width, top + 24) };
			x += width + GAP;
			return mix;
		});
		const mlp = layer.added.feedforward ? { left: x, width: MLP } : null;
		if (mlp) x += MLP + GAP;
		return { ...layer, isOpen, left: begin, width: x - begin - GAP, attentions, mlp };
	});
	const final = stack.final.length && !layers.length ? { left: x, width: STRIP } : null;
	if (final) x += STRIP + GAP;
	const bottom = top + header + numTokens * rowHeight;
	return { stack, name: stack.name, numTokens, top, header, left, bottom, y, strip, layers, final, end: x };
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
