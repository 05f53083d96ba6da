// Options of the worked example: scoring, normalisation, mask and scale; every change is computed at once.

import { element, radioGroup } from "../element.js";
import { MatrixTable } from "../matrix.js";
import { additiveScoring } from "./example.js";

const SCORINGS = [["dot", "dot"], ["cosine", "cosine"], ["scaled-dot", "scaled dot"], ["additive", "additive"]];
const NORMALISATIONS = [["softmax", "softmax"], ["sum", "by sum"], ["none", "none"]];

/**
 * @param {HTMLElement} container
 * @param {object} example
 * @param {(changes: object) => void} onChange
 */
export function showOptions(container, example, onChange, steps) {
  if (example.weights) {
    container.replaceChildren(element("p", { class: "quiet" }, "The weights are given in this example: scoring and normalisation have no effect."));
    return;
  }
  const scoring = example.scoring?.kind ?? example.scoring ?? "scaled-dot";
  const mask = example.mask || example.bias || example.window ? "own" : example.causal ? "causal" : "none";
  const dimensions = queryAndKeyDimensions(steps);
  container.replaceChildren(
    radioGroup("scoring", SCORINGS, scoring, (kind) => onChange({ scoring: kind === "additive" ? additiveScoring(...dimensions) : kind })),
    radioGroup("normalise", NORMALISATIONS, example.normalise ?? "softmax", (normalise) => onChange({ normalise })),
    radioGroup("mask", [["none", "none"], ["causal", "causal"], ["own", "custom"]], mask, (kind) => onChange(maskFields(example, kind))),
    radioGroup("scale", scaleOptions(example), example.scale === null || example.scale === undefined ? "default" : String(example.scale), (scale) => onChange({ scale: scale === "default" ? null : Number(scale) })),
    ...(mask === "own" ? [maskTable(example, onChange)] : []),
    ...(scoring === "additive" ? additiveTables(example.scoring, onChange) : []));
}

function scaleOptions(example) {
  const scoring = example.scoring?.kind ?? example.scoring ?? "scaled-dot";
  const defaultLabel = scoring === "scaled-dot" ? "1/√dₖ" : "default";
  const custom = example.scale !== null && example.scale !== undefined && ![1, 0.1, 10].includes(example.scale) ? [[String(example.scale), String(example.scale)]] : [];
  return [["default", defaultLabel], ["1", "1"], ["0.1", "0.1"], ["10", "10"], ...custom];
}

function maskFields(example, kind) {
  const keys = example.source_tokens?.length ? example.source_tokens : example.tokens;
  const initial = example.tokens.map((_, row) => keys.map((_, column) => !example.causal || column <= row));
  return { causal: kind === "causal", mask: kind === "own" ? initial : null, bias: null, window: null };
}

function maskTable(example, onChange) {
  const keys = example.source_tokens?.length ? example.source_tokens : example.tokens;
  const mask = example.mask ?? example.tokens.map(() => keys.map(() => true));
  const toggle = (row, column) => onChange({ mask: mask.map((line, r) => line.map((visible, c) => (r === row && c === column ? !visible : visible))) });
  const cell = (visible, row, column) => element("td", {}, element("button", { type: "button", class: "mask-cell", "aria-pressed": String(visible), "aria-label": `${example.tokens[row]} attends to ${keys[column]}`, onclick: () => toggle(row, column) }, visible ? "✓" : "×"));
  return element("figure", { class: "matrix" }, element("table", {}, element("caption", {}, element("b", { class: "name" }, "mask"), element("span", { class: "description" }, "Which query may attend to which key; click to change.")),
    element("thead", {}, element("tr", {}, element("td", { class: "corner" }, "query ↓ key →"), keys.map((key) => element("th", { scope: "col" }, element("bdi", {}, key))))),
    element("tbody", {}, mask.map((line, row) => element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, example.tokens[row])), line.map((visible, column) => cell(visible, row, column)))))));
}

function additiveTables(scoring, onChange) {
  const editor = (name, values, toFields) => new MatrixTable({
    name, values, rows: values.map((_, index) => String(index + 1)), columns: values[0].map((_, index) => String(index + 1)),
    edit: { change: (row, column, value) => onChange({ scoring: { ...scoring, ...toFields(values.map((line, r) => line.map((number, c) => (r === row && c === column ? value : number)))) } }) },
  }).element;
  return [editor("W", scoring.w, (w) => ({ w })), editor("U", scoring.u, (u) => ({ u })), editor("v", [scoring.v], ([v]) => ({ v }))];
}

function queryAndKeyDimensions(steps) {
  const dimension = (name) => steps.find((step) => step.name.endsWith(name))?.columns.length ?? 2;
  return [dimension("query"), dimension("key")];
}
