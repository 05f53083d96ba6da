// Matrix as LaTeX, Markdown, CSV or NumPy code.

import { writeNumber } from "/web/render/numbers.js";
import { csvLine } from "../download.js";
import { decimalsFor } from "../matrix.js";

export function latex(step, decimals) {
	const lines = formatCells(step, decimals).map((row) =>
		row.map((cell) => cell.replace("−∞", "-\\infty").replace("∞", "\\infty")).join(" & "),
	);
	return `\\begin{bmatrix}\n${lines.join(" \\\\\n")}\n\\end{bmatrix}`;
}

export function markdown(step, decimals) {
	const escapeCell = (text) => text.replace(/([\\|`*_<>])/g, "\\$1").replace(/\s+/g, " ");
	const lines = formatCells(step, decimals).map(
		(row, index) => `| ${[escapeCell(step.rows[index]), ...row].join(" | ")} |`,
	);
	return [
		`| | ${step.columns.map(escapeCell).join(" | ")} |`,
		`|---|${"---:|".repeat(step.columns.length)}`,
		...lines,
	].join("\n");
}

export function csv(step, decimals) {
	const lines = formatCells(step, decimals).map((row, index) => [
		step.rows[index],
		...row.map((text) => text.replace("−∞", "-inf")),
	]);
	return [["", ...step.columns], ...lines].map(csvLine).join("");
}

export function numpy(steps) {
	const number = (value) => (value === null ? "-np.inf" : String(value));
	const arrayRow = (row) => `    [${row.map(number).join(", ")}],`;
	const variableName = (step) => step.name.replace(/[^a-z0-9]+/gi, "_");
	const arrays = steps.map((step) => `${variableName(step)} = np.array([\n${step.values.map(arrayRow).join("\n")}\n])`);
	return ["import numpy as np", ...arrays].join("\n\n");
}

function formatCells(step, decimals) {
	const shownDecimals = decimalsFor(step.values, decimals);
	return step.values.map((row) => row.map((value) => writeNumber(value, shownDecimals)));
}
