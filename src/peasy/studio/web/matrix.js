// A labelled matrix: shaded, walked through by arrows, its cells picked, edited, or hidden for a quiz.

import { cssColour, inkOn, rampOf, shareOf } from "/web/render/colour.js";
import { element } from "./element.js";
import { decimalsFor, writeNumber } from "./number.js";

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/**
 * @typedef {object} Spec
 * @property {string} name
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {(number|null)[][]} values null is minus infinity
 * @property {string} [rowAxis]
 * @property {string} [columnAxis]
 * @property {Node} [math] its formula
 * @property {string} [says] one sentence about it
 * @property {number} [decimals]
 * @property {boolean} [shaded]
 * @property {(row: number, column: number) => void} [onpick]
 * @property {{change: (row: number, column: number, value: number) => void, paste?: (row: number, column: number, grid: string[][]) => void, rename?: (row: number, name: string) => void}} [edit]
 * @property {Set<string>} [hidden] cells "row,column" that are asked for
 */

export class Matrix {
  /** @param {Spec} spec */
  constructor(spec) {
    this.spec = spec;
    this.decimals = decimalsFor(spec.values, spec.decimals ?? 4);
    this.cells = spec.values.map((row, r) => row.map((value, c) => this.#cell(value, r, c)));
    this.picked = null;
    this.element = element("figure", { class: "matrix", "data-matrix": spec.name }, this.#table());
    if (!spec.onpick && !spec.edit && !spec.hidden) this.element.tabIndex = 0;
    if (spec.shaded) this.#shade();
  }

  #table() {
    const { name, math, says, rows, columns, rowAxis, columnAxis } = this.spec;
    const corner = [[rowAxis, "↓"], [columnAxis, "→"]].filter(([axis]) => axis).map((pair) => pair.join(" ")).join(" ");
    const caption = element("caption", {}, element("b", { class: "name" }, name), math && element("span", { class: "formula" }, math), says && element("span", { class: "says" }, says));
    const head = element("tr", {}, element("td", { class: "corner" }, corner), columns.map((label) => element("th", { scope: "col" }, element("bdi", {}, label))));
    const made = element("table", {}, caption, element("thead", {}, head), element("tbody", {}, this.cells.map((cells, r) => element("tr", {}, this.#label(rows[r] ?? String(r + 1), r), cells))));
    made.addEventListener("keydown", (event) => this.#moved(event));
    made.addEventListener("focusin", (event) => this.#focused(event));
    made.addEventListener("paste", (event) => this.#pasted(event));
    return made;
  }

  #label(text, row) {
    const rename = this.spec.edit?.rename;
    if (!rename) return element("th", { scope: "row" }, element("bdi", {}, text));
    const input = element("input", { type: "text", class: "token", value: text, size: Math.max(3, Math.min([...text].length + 1, 14)), "aria-label": `token of row ${row + 1}`, maxlength: 100 });
    input.addEventListener("change", () => rename(row, input.value));
    return element("th", { scope: "row" }, input);
  }

  #cell(value, row, column) {
    const { edit, hidden, onpick } = this.spec;
    if (hidden?.has(`${row},${column}`)) return element("td", { class: "asked" }, this.#input("", row, column, "quiz"));
    if (edit) return element("td", { class: "open" }, this.#input(value === null ? "-inf" : String(value), row, column, "number"));
    const first = row === 0 && column === 0;
    const cell = element("td", { tabindex: onpick ? (first ? 0 : -1) : null, "data-at": `${row},${column}` }, writeNumber(value, this.decimals));
    if (onpick) cell.addEventListener("click", () => cell.focus());
    return cell;
  }

  #input(value, row, column, kind) {
    const { rows, columns, name } = this.spec;
    const label = `${name}, row ${rows[row] ?? row + 1}, column ${columns[column] ?? column + 1}`;
    const input = element("input", { type: "text", inputmode: "decimal", class: kind, value, size: 5, "aria-label": label, "data-at": `${row},${column}`, maxlength: 40, autocomplete: "off" });
    if (kind === "number") input.addEventListener("change", () => this.#changed(input, row, column));
    return input;
  }

  #changed(input, row, column) {
    const value = readNumber(input.value);
    input.setAttribute("aria-invalid", value === null);
    if (value !== null) this.spec.edit.change(row, column, value);
  }

  #pasted(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    const at = event.target.dataset?.at;
    if (!at || !this.spec.edit?.paste || !/[\t\n]/.test(text.trim())) return;
    event.preventDefault();
    const [row, column] = at.split(",").map(Number);
    this.spec.edit.paste(row, column, readGrid(text));
  }

  #shade() {
    const numbers = this.spec.values.flat().filter(Number.isFinite);
    const [low, high] = [Math.min(0, ...numbers), Math.max(0, ...numbers)];
    const reach = Math.max(-low, high);
    const range = low < 0 ? { low: -reach, high: reach } : { low: 0, high };
    const ramp = rampOf(low < 0, false);
    this.cells.forEach((row, r) => row.forEach((cell, c) => {
      const value = this.spec.values[r][c];
      if (cell.classList.contains("asked") || !Number.isFinite(value)) return;
      const part = shareOf(value, range);
      cell.style.background = cssColour(ramp, part);
      cell.style.color = inkOn(ramp, part);
    }));
  }

  #moved(event) {
    const move = MOVES[event.key];
    const at = event.target.dataset?.at;
    if (!move || !at || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.tagName === "INPUT";
    // In a field, left and right move the caret; up and down go from cell to cell as in a spreadsheet.
    if (typing && move[0] === 0) return;
    const [row, column] = at.split(",").map(Number);
    const next = this.cells[row + move[0]]?.[column + move[1]];
    if (!next) return;
    event.preventDefault();
    event.stopPropagation();
    const target = next.querySelector("input") ?? next;
    target.focus();
    target.select?.();
  }

  #focused(event) {
    const at = event.target.dataset?.at;
    if (!at || !this.spec.onpick || event.target.tagName === "INPUT") return;
    const [row, column] = at.split(",").map(Number);
    this.mark(row, column);
    this.spec.onpick(row, column);
  }

  /** Point out one cell without moving the focus. */
  mark(row, column) {
    this.picked?.classList.remove("picked");
    this.picked = this.cells[row]?.[column] ?? null;
    this.picked?.classList.add("picked");
    if (!this.picked || this.picked.tabIndex === undefined || !this.spec.onpick) return;
    this.cells.flat().forEach((cell) => cell.hasAttribute("tabindex") && (cell.tabIndex = -1));
    this.picked.tabIndex = 0;
  }

  /** Point out what a number was made of: whole rows, whole columns, or single cells. */
  light({ row = null, column = null, cell = null } = {}) {
    this.cells.forEach((cells, r) => cells.forEach((each, c) => {
      each.classList.toggle("used", r === row || c === column || (cell !== null && cell[0] === r && cell[1] === c));
    }));
  }
}

/** What somebody typed as a number: decimal commas, fractions and the typographic minus are understood; else null. */
export function readNumber(text) {
  const plain = text.trim().replace("−", "-").replace(/^([-+]?\d*),(\d+)$/, "$1.$2");
  const parts = /^([-+]?[\d.]+)\/([\d.]+)$/.exec(plain);
  const value = parts ? Number(parts[1]) / Number(parts[2]) : Number(plain);
  return plain !== "" && Number.isFinite(value) ? value : null;
}

/** What a spreadsheet put on the clipboard: rows of cells. */
export function readGrid(text) {
  const lines = text.replace(/\r/g, "").replace(/\n+$/, "").split("\n");
  const between = text.includes("\t") ? "\t" : /;/.test(text) ? ";" : /[ ,]+/;
  return lines.map((line) => line.trim().split(between).map((cell) => cell.trim()));
}
