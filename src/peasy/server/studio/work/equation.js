// Equation of each step: its operands, and the operand cells that a number of the result depends on.

import { scoringOf } from "./example.js";

const SECTIONS = [
	{ number: 1, title: "X", label: "Input", steps: ["x", "source"] },
	{ number: 2, title: "Q, K, V", label: "Query, key and value", steps: ["query", "key", "value"] },
	{ number: 3, title: "QKᵀ", label: "Scores", steps: ["scores"] },
	{ number: 4, title: "/√dₖ", label: "Scale and mask", steps: ["scaled", "masked"] },
	{ number: 5, title: "softmax", label: "Weights", steps: ["weights"] },
	{ number: 6, title: "· V", label: "Weighted sum", steps: ["context"] },
	{ number: 7, title: "heads", label: "All heads", steps: ["concat", "output"] },
];

export const baseName = (name) => name.split(".").at(-1);
const headOf = (name) => Number(/^head-(\d+)\./.exec(name)?.[1] ?? 0);

export const isNetwork = (example) => Object.keys(example.steps ?? {}).length > 0;

/** The sections of a network: one for each of its blocks, in order. */
export function blocksOf(steps) {
	const sections = [];
	for (const step of steps) {
		const label = step.name.split(".").slice(0, -1).join(", ").replaceAll("_", " ") || baseName(step.name);
		if (sections.at(-1)?.label !== label)
			sections.push({ number: sections.length + 1, title: label.split(", ").slice(-2).join(", "), label, steps: [] });
		sections.at(-1).steps.push(step);
	}
	return sections;
}

/** The sections of a result, each with its steps of one head (steps without a head belong to all). */
export function sectionsOf(steps, head) {
	return SECTIONS.map((section) => ({
		...section,
		steps: steps.filter((step) => section.steps.includes(baseName(step.name)) && [0, head].includes(headOf(step.name))),
	})).filter((section) => section.steps.length);
}

export function headsOf(steps) {
	return [...new Set(steps.map((step) => headOf(step.name)))].filter(Boolean);
}

/** The equation of a step: operators and operands before the result; missing operands are left out. */
export function equationOf(step, steps, example) {
	if (isNetwork(example)) return [];
	const head = headOf(step.name);
	const find = (name) =>
		steps.find((candidate) => candidate.name === (head ? `head-${head}.${name}` : name)) ??
		steps.find((candidate) => candidate.name === name);
	const operand = (name, options = {}) => (find(name) ? [{ step: find(name), ...options }] : []);
	const product = (left, right) => (find(right) ? [...operand(left), "·", ...operand(right), "="] : []);
	const input = find("source") ? "source" : "x";
	const equations = {
		query: () => product("x", "w_q"),
		key: () => product(input, "w_k"),
		value: () => product(input, "w_v"),
		scores: () => scoresEquation(example, operand),
		scaled: () => [...operand("scores"), scaleOperator(example), "="],
		masked: () => ["+ M", "="],
		weights: () => [normaliseOperator(example), ...operand(find("masked") ? "masked" : "scaled"), "="],
		context: () => product("weights", "value"),
		output: () => product("concat", "w_o"),
	};
	const isGiven = baseName(step.name) === "weights" && !find("scores");
	return isGiven ? [] : (equations[baseName(step.name)]?.() ?? []);
}

function scoresEquation(example, operand) {
	const kind = scoringOf(example);
	if (kind === "additive") return ["v · tanh(", ...operand("query"), "W +", ...operand("key"), "U ) ="];
	if (kind === "cosine") return ["cos(", ...operand("query"), ",", ...operand("key"), ") ="];
	return [...operand("query"), "·", ...operand("key", { transposed: true }), "="];
}

function scaleOperator(example) {
	if (example.scale != null) return `× ${example.scale}`;
	return scoringOf(example) === "scaled-dot" ? "/ √dₖ" : "× 1";
}

function normaliseOperator(example) {
	return { softmax: "softmax", sum: "÷ sum of row", none: "unchanged" }[example.normalise] ?? "softmax";
}

/** Cells of an operand to highlight when a cell of the result is selected. */
export function usedCells(result, operand, row, column) {
	const [resultName, operandName] = [baseName(result.name), baseName(operand.step.name)];
	if (operand.transposed) return { column };
	if (["scaled", "masked"].includes(resultName)) return { cell: [row, column] };
	if (resultName === "weights") return { row };
	if (resultName === "scores") return operandName === "key" ? { row: column } : { row };
	if (["w_q", "w_k", "w_v", "w_o", "value"].includes(operandName)) return { column };
	return { row };
}
