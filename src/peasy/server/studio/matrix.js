// Labelled matrix table: shaded, navigated with arrow keys; cells can be selected, edited, or left open for a quiz.

import { ARROW_MOVES } from "/web/render/moves.js";
import { cssColour, fractionOf, rampOf, textColourOn } from "/web/render/colour.js";
import { colourRange, indices, toFixedHalfEven, writeNumber } from "/web/render/numbers.js";
import { bdi, element } from "./element.js";

const TOLERANCE = 1e-12;

export class MatrixTable {
	/**
	 * `spec`: name, rows, columns (labels), values (null is minus infinity), and optionally rowAxis, columnAxis, math (its
	 * formula), caption (one sentence), decimals, shaded, onSelect(row, column), edit with the functions change(row,
	 * column, value), paste(row, column, grid) and rename(row, name), openCells (a set of "row,column" to be filled in),
	 * and makeContent(row, column) for cells that are not numbers.
	 */
	constructor(spec) {
		this.spec = spec;
		this.decimals = decimalsFor(spec.values, spec.decimals ?? 4);
		this.cells = spec.values.map((values, row) => values.map((value, column) => this.#makeCell(value, row, column)));
		this.selectedCell = null;
		this.operands = null; // matrices that this one is calculated from, set by the page
		this.element = element("figure.matrix", { "data-matrix": spec.name }, this.#makeTable());
		if (!spec.onSelect && !spec.edit && !spec.openCells) this.element.tabIndex = 0;
		if (spec.shaded) this.#shadeCells();
	}

	#makeTable() {
		const { name, math, caption, rows, columns, rowAxis, columnAxis } = this.spec;
		const corner = [rowAxis && `${rowAxis} ↓`, columnAxis && `${columnAxis} →`].filter(Boolean).join(" ");
		const captionElement = element(
			"caption",
			element("b.name", name),
			math && element("span.formula", math),
			caption && element("span.description", caption),
		);
		const head = element(
			"tr",
			element("td.corner", corner),
			columns.map((label) => element("th", { scope: "col" }, bdi(label))),
		);
		const body = this.cells.map((cells, row) =>
			element("tr", this.#makeRowLabel(rows[row] ?? String(row + 1), row), cells),
		);
		const listeners = {
			onkeydown: (event) => this.#onKeyDown(event),
			onfocusin: (event) => this.#onFocus(event),
			onpaste: (event) => this.#onPaste(event),
		};
		return element("table", listeners, captionElement, element("thead", head), element("tbody", body));
	}

	#makeRowLabel(text, row) {
		const rename = this.spec.edit?.rename;
		if (!rename) return element("th", { scope: "row" }, bdi(text));
		const input = element("input.token", {
			type: "text",
			value: text,
			size: Math.max(3, Math.min([...text].length + 1, 14)),
			"aria-label": `token of row ${row + 1}`,
			maxlength: 100,
			onchange: () => rename(row, input.value),
		});
		return element("th", { scope: "row" }, input);
	}

	#makeCell(value, row, column) {
		const { edit, openCells, onSelect, makeContent } = this.spec;
		if (makeContent) return element("td", makeContent(row, column));
		if (openCells?.has(`${row},${column}`)) return element("td.quiz-cell", this.#makeInput("", row, column, "quiz"));
		if (edit)
			return element("td.open", this.#makeInput(value === null ? "-inf" : String(value), row, column, "number"));
		const isFirst = row === 0 && column === 0;
		const cell = element(
			"td",
			{ tabindex: onSelect ? (isFirst ? 0 : -1) : null, "data-at": `${row},${column}` },
			writeNumber(value, this.decimals),
		);
		if (onSelect) cell.addEventListener("click", () => cell.focus());
		return cell;
	}

	#makeInput(value, row, column, kind) {
		const { rows, columns, name } = this.spec;
		const label = `${name}, row ${rows[row] ?? row + 1}, column ${columns[column] ?? column + 1}`;
		return element(`input.${kind}`, {
			type: "text",
			inputmode: "decimal",
			value,
			size: 5,
			"aria-label": label,
			"data-at": `${row},${column}`,
			maxlength: 40,
			autocomplete: "off",
			onchange: ({ target }) => kind === "number" && this.#onChange(target, row, column),
		});
	}

	#onChange(input, row, column) {
		const value = readNumber(input.value);
		input.setAttribute("aria-invalid", value === null);
		if (value !== null) this.spec.edit.change(row, column, value);
	}

	#onPaste(event) {
		const text = event.clipboardData?.getData("text/plain") ?? "";
		const position = event.target.dataset?.at;
		if (!position || !this.spec.edit?.paste || !/[\t\n]/.test(text.trim())) return;
		event.preventDefault();
		this.spec.edit.paste(...position.split(",").map(Number), readGrid(text));
	}

	#shadeCells() {
		const range = colourRange([0, ...this.spec.values.flat().filter(Number.isFinite)]);
		const ramp = rampOf(range.signed, false);
		this.cells.forEach((cells, row) =>
			cells.forEach((cell, column) => {
				const value = this.spec.values[row][column];
				if (cell.classList.contains("quiz-cell") || !Number.isFinite(value)) return;
				const fraction = fractionOf(value, range);
				cell.style.background = cssColour(ramp, fraction);
				cell.style.color = textColourOn(ramp, fraction);
			}),
		);
	}

	#onKeyDown(event) {
		const move = ARROW_MOVES[event.key];
		const position = event.target.dataset?.at;
		if (!move || !position || event.ctrlKey || event.metaKey || event.altKey) return;
		const isInput = event.target.tagName === "INPUT";
		// In a field, left and right move the caret; up and down go from cell to cell as in a spreadsheet.
		if (isInput && move[0] === 0) return;
		const [row, column] = position.split(",").map(Number);
		const next = this.cells[row + move[0]]?.[column + move[1]];
		if (!next) return;
		event.preventDefault();
		event.stopPropagation();
		const target = next.querySelector("input") ?? next;
		target.focus();
		target.select?.();
	}

	#onFocus(event) {
		const position = event.target.dataset?.at;
		if (!position || !this.spec.onSelect || event.target.tagName === "INPUT") return;
		const [row, column] = position.split(",").map(Number);
		this.selectCell(row, column);
		this.spec.onSelect(row, column);
	}

	/** Mark one cell as selected without moving the focus. */
	selectCell(row, column) {
		this.selectedCell?.classList.remove("picked");
		this.selectedCell = this.cells[row]?.[column] ?? null;
		this.selectedCell?.classList.add("picked");
		if (!this.selectedCell || !this.spec.onSelect) return;
		this.cells.flat().forEach((cell) => (cell.tabIndex = -1));
		this.selectedCell.tabIndex = 0;
	}

	/** Highlight what a number was computed from: a row, a column, or a single cell. */
	highlight({ row = null, column = null, cell = null } = {}) {
		this.cells.forEach((cells, r) =>
			cells.forEach((cellElement, c) => {
				cellElement.classList.toggle("used", r === row || c === column || String(cell) === `${r},${c}`);
			}),
		);
	}
}

/** Decimals that these numbers need, at most `maxDecimals`: integers are written without. */
export function decimalsFor(rows, maxDecimals) {
	const numbers = rows.flat().filter(Number.isFinite);
	const isExact = (value, decimals) =>
		Math.abs(Number(toFixedHalfEven(value, decimals)) - value) <= TOLERANCE * Math.max(1, Math.abs(value));
	return indices(maxDecimals).find((decimals) => numbers.every((value) => isExact(value, decimals))) ?? maxDecimals;
}

/** Typed text as a number; decimal commas, fractions and the typographic minus are accepted; otherwise null. */
export function readNumber(text) {
	const plain = text
		.trim()
		.replace("−", "-")
		.replace(/^([-+]?\d*),(\d+)$/, "$1.$2");
	const fraction = /^([-+]?[\d.]+)\/([\d.]+)$/.exec(plain);
	const value = fraction ? Number(fraction[1]) / Number(fraction[2]) : Number(plain);
	return plain !== "" && Number.isFinite(value) ? value : null;
}

/** Clipboard text of a spreadsheet as rows of cells. */
function readGrid(text) {
	const lines = text.replace(/\r/g, "").replace(/\n+$/, "").split("\n");
	const separator = text.includes("\t") ? "\t" : /;/.test(text) ? ";" : /[ ,]+/;
	return lines.map((line) => Array.from(line.trim().split(separator), (cell) => cell.trim()));
}
