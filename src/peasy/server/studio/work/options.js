// Options of the worked example: scoring, normalisation, mask and scale; every change is computed at once.

import { button, fill, quiet, radioGroup } from "../element.js";
import { MatrixTable } from "../matrix.js";
import { additiveScoring, keysOf, scoringOf } from "./example.js";

const SCORINGS = ["dot", "cosine", ["scaled-dot", "scaled dot"], "additive"];
const NORMALISATIONS = ["softmax", ["sum", "by sum"], "none"];
const MASKS = ["none", "causal", ["own", "custom"]];

export function showOptions(container, example, onChange, steps) {
	if (example.weights) {
		return fill(container, quiet("The weights are given in this example: scoring and normalisation have no effect."));
	}
	const scoring = scoringOf(example);
	const mask = example.mask || example.bias || example.window ? "own" : example.causal ? "causal" : "none";
	const dimensions = queryAndKeyDimensions(steps);
	return fill(
		container,
		radioGroup("scoring", SCORINGS, scoring, (kind) =>
			onChange({ scoring: kind === "additive" ? additiveScoring(...dimensions) : kind }),
		),
		radioGroup("normalise", NORMALISATIONS, example.normalise ?? "softmax", (normalise) => onChange({ normalise })),
		radioGroup("mask", MASKS, mask, (kind) => onChange(maskFields(example, kind))),
		radioGroup("scale", scaleOptions(example), String(example.scale ?? "default"), (scale) =>
			onChange({ scale: scale === "default" ? null : Number(scale) }),
		),
		mask === "own" && maskTable(example, onChange),
		scoring === "additive" && additiveTables(example.scoring, onChange),
	);
}

function scaleOptions(example) {
	const defaultLabel = scoringOf(example) === "scaled-dot" ? "1/√dₖ" : "default";
	const scales = new Set(["1", "0.1", "10", String(example.scale ?? 1)]);
	return [["default", defaultLabel], ...scales];
}

function maskFields(example, kind) {
	const keys = keysOf(example);
	const initial = example.tokens.map((_token, row) => keys.map((_key, column) => !example.causal || column <= row));
	return { causal: kind === "causal", mask: kind === "own" ? initial : null, bias: null, window: null };
}

function maskTable(example, onChange) {
	const keys = keysOf(example);
	const mask = example.mask ?? example.tokens.map(() => keys.map(() => true));
	const toggle = (row, column) => onChange({ mask: mask.with(row, mask[row].with(column, !mask[row][column])) });
	const makeContent = (row, column) =>
		button(mask[row][column] ? "✓" : "×", () => toggle(row, column), {
			class: "mask-cell",
			"aria-pressed": mask[row][column],
			"aria-label": `${example.tokens[row]} attends to ${keys[column]}`,
		});
	return new MatrixTable({
		name: "mask",
		caption: "Which query may attend to which key; click to change.",
		rows: example.tokens,
		columns: keys,
		values: mask,
		rowAxis: "query",
		columnAxis: "key",
		makeContent,
	}).element;
}

function additiveTables(scoring, onChange) {
	const editor = (name, values, toFields) =>
		new MatrixTable({
			name,
			values,
			rows: values.map((_, index) => String(index + 1)),
			columns: values[0].map((_, index) => String(index + 1)),
			edit: {
				change: (row, column, value) => {
					const changed = values.with(row, values[row].with(column, value));
					onChange({ scoring: { ...scoring, ...toFields(changed) } });
				},
			},
		}).element;
	return [
		editor("W", scoring.w, (w) => ({ w })),
		editor("U", scoring.u, (u) => ({ u })),
		editor("v", [scoring.v], ([v]) => ({ v })),
	];
}

function queryAndKeyDimensions(steps) {
	const dimension = (name) => steps.find((step) => step.name.endsWith(name))?.columns.length ?? 2;
	return [dimension("query"), dimension("key")];
}
