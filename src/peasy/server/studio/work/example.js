// Editable worked example: numbers, tokens, settings; short enough for a URL.

import { indices } from "/web/render/numbers.js";

const FIELDS = (
	"title description source note tokens features x row_dim col_dim source_tokens source_x w_q w_k w_v w_o q k v " +
	"weights heads scoring scale mask bias causal window normalise last_step"
).split(" ");
const DEFAULTS = { row_dim: 0, col_dim: 1, heads: 1, scoring: "scaled-dot", causal: false, normalise: "softmax" };
const MAX_URL_LENGTH = 6000; // characters of an example in a URL; servers refuse much longer ones

const INPUTS = ["x", "w_q", "w_k", "w_v", "w_o", "weights"]; // steps with the name of their field

/** Field of the example that holds the numbers of a step; null for computed steps. */
export function fieldOf(step, example) {
	const name = INPUTS.includes(step) ? step : { source: "source_x", query: "q", key: "k", value: "v" }[step];
	return name && example[name] ? name : null;
}

export const scoringOf = ({ scoring }) => scoring?.kind ?? scoring ?? "scaled-dot";

/** Labels of the keys: another source's tokens, or the example's own. */
export const keysOf = ({ source_tokens, tokens }) => (source_tokens?.length ? source_tokens : tokens);

/** The example without empty and default fields. */
export function compact(example) {
	const compacted = {};
	for (const name of FIELDS) {
		const value = example[name];
		const isEmpty = (value ?? "").length === 0; // numbers and objects have no length
		if (!isEmpty && value !== DEFAULTS[name]) compacted[name] = value;
	}
	return compacted;
}

/** The example as text for the URL; null if it is too long. */
export function toUrlText(example) {
	const text = JSON.stringify({ ...compact(example), description: undefined, source: undefined, note: undefined });
	return text.length <= MAX_URL_LENGTH ? text : null;
}

export function fromUrlText(text) {
	try {
		const example = JSON.parse(text);
		return example && typeof example === "object" && Array.isArray(example.tokens) ? example : null;
	} catch {
		return null;
	}
}

/** Copy of the example with one number changed. */
export function withNumber(example, field, row, column, value) {
	const grid = example[field];
	const [r, c] = field === "x" && example.row_dim === 1 ? [column, row] : [row, column];
	return { ...example, [field]: grid.with(r, grid[r].with(c, value)) };
}

/** Copy with pasted cells; a first column of words gives the tokens, and the matrix grows to fit. */
export function withPastedCells(example, field, row, column, grid, readNumber) {
	const upright = withTokensAsRows(example);
	let cells = grid;
	const tokens = [...upright.tokens];
	const hasTokens = field === "x" && cells.every((line) => line.length > 1 && readNumber(line[0]) === null);
	if (hasTokens && column === 0) {
		cells.forEach((line, r) => (tokens[row + r] = line[0]));
		cells = cells.map((line) => line.slice(1));
	}
	const numbers = cells.map((line) => line.map((cell) => readNumber(cell) ?? 0));
	const [height, width] = [
		Math.max(upright[field].length, row + numbers.length),
		Math.max(upright[field][0].length, column + Math.max(...numbers.map((line) => line.length))),
	];
	const grown = resizeExample({ ...upright, tokens }, field, height, width);
	numbers.forEach((line, r) => line.forEach((value, c) => (grown[field][row + r][column + c] = value)));
	return grown;
}

/** Copy with this many rows and columns; new cells are 0, and the weight matrices are resized to fit. */
export function resizeExample(example, field, height, width) {
	const resized = withTokensAsRows(example);
	resized[field] = fitGrid(resized[field], height, width);
	if (field === "x" || field === "q" || (field === "weights" && !resized.source_tokens?.length))
		resized.tokens = fitNames(resized.tokens, height);
	if (field === "x") {
		for (const name of ["w_q", "w_k", "w_v"]) {
			if (resized[name] && !(name !== "w_q" && resized.source_x))
				resized[name] = fitGrid(resized[name], width, resized[name][0].length);
		}
		if (resized.features?.length) resized.features = fitNames(resized.features, width);
	}
	if (["source_x", "k", "v"].includes(field) && resized.source_tokens?.length)
		resized.source_tokens = fitNames(resized.source_tokens, height);
	if (resized.mask) resized.mask = fitGrid(resized.mask, resized.tokens.length, keysOf(resized).length, true);
	if (resized.bias) resized.bias = null;
	return resized;
}

function withTokensAsRows(example) {
	const copy = structuredClone(example);
	if (copy.row_dim === 1 && copy.x) copy.x = copy.x[0].map((_, column) => copy.x.map((line) => line[column]));
	return { ...copy, row_dim: 0, col_dim: 1, variants: [], written: [], plot_features: [], project: [] };
}

/** @param {number | boolean} fill */
function fitGrid(grid, height, width, fill = 0) {
	return indices(height).map((r) => indices(width).map((c) => grid[r]?.[c] ?? fill));
}

function fitNames(names, count) {
	return indices(count).map((index) => names[index] ?? `word ${index + 1}`);
}

const IDENTITY = [
	[1, 0],
	[0, 1],
];

/** Starting point for the user's own numbers. */
export const BLANK_EXAMPLE = {
	title: "Own numbers",
	tokens: ["one", "two", "three"],
	x: [
		[1, 0],
		[0, 1],
		[1, 1],
	],
	w_q: IDENTITY,
	w_k: IDENTITY,
	w_v: IDENTITY,
};

/** Additive (Bahdanau) scoring with simple weights, for vectors of these dimensions. */
export function additiveScoring(queryWidth, keyWidth) {
	const weights = (height) => indices(height).map((r) => [0, 1].map((c) => Number(r % 2 === c)));
	return { kind: "additive", w: weights(queryWidth), u: weights(keyWidth), v: [1, 1] };
}
