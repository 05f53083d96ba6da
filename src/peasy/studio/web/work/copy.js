// One table as text for other programs, from the numbers the server gave.

import { decimalsFor, writeNumber } from "../number.js";

export function latex(step, decimals) {
  const lines = written(step, decimals).map((row) => row.map((cell) => cell.replace("−∞", "-\\infty").replace("∞", "\\infty")).join(" & "));
  return `\\begin{bmatrix}\n${lines.join(" \\\\\n")}\n\\end{bmatrix}`;
}

export function markdown(step, decimals) {
  const safe = (text) => text.replace(/([\\|`*_<>])/g, "\\$1").replace(/\s+/g, " ");
  const lines = written(step, decimals).map((row, at) => `| ${[safe(step.rows[at]), ...row].join(" | ")} |`);
  return [`| | ${step.columns.map(safe).join(" | ")} |`, `|---|${"---:|".repeat(step.columns.length)}`, ...lines].join("\n");
}

// A cell that a spreadsheet would take for a formula is text for it.
export function csv(step, decimals) {
  const cell = (text) => {
    const plain = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  const lines = written(step, decimals).map((row, at) => [cell(step.rows[at]), ...row.map((each) => each.replace("−∞", "-inf"))].join(","));
  return [["", ...step.columns.map(cell)].join(","), ...lines].join("\n");
}

export function numpy(steps) {
  const number = (value) => (value === null ? "-np.inf" : String(value));
  const name = (step) => step.name.replace(/[^a-z0-9]+/gi, "_");
  const made = steps.map((step) => `${name(step)} = np.array([\n${step.values.map((row) => `    [${row.map(number).join(", ")}],`).join("\n")}\n])`);
  return ["import numpy as np", ...made].join("\n\n");
}

function written(step, decimals) {
  const places = decimalsFor(step.values, decimals);
  return step.values.map((row) => row.map((value) => writeNumber(value, places)));
}
