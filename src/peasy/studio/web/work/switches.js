// The switches of Work: scoring, normalisation, mask and scale; every turn is worked out at once.

import { choices, element } from "../element.js";
import { Matrix } from "../matrix.js";
import { additive } from "./example.js";

const SCORINGS = [["dot", "dot"], ["cosine", "cosine"], ["scaled-dot", "scaled dot"], ["additive", "additive"]];
const NORMALISATIONS = [["softmax", "softmax"], ["sum", "by sum"], ["none", "none"]];

/**
 * @param {HTMLElement} home
 * @param {object} example
 * @param {(changes: object) => void} change
 */
export function switches(home, example, change, desk) {
  if (example.weights) {
    home.replaceChildren(element("p", { class: "quiet" }, "The weights are given here: scoring and normalisation have nothing to do."));
    return;
  }
  const scoring = example.scoring?.kind ?? example.scoring ?? "scaled-dot";
  const mask = example.mask || example.bias || example.window ? "own" : example.causal ? "causal" : "none";
  const sizes = widths(desk.answer.steps);
  home.replaceChildren(
    choices("scoring", SCORINGS, scoring, (kind) => change({ scoring: kind === "additive" ? additive(...sizes) : kind })),
    choices("normalise", NORMALISATIONS, example.normalise ?? "softmax", (normalise) => change({ normalise })),
    choices("mask", [["none", "none"], ["causal", "causal"], ["own", "own"]], mask, (kind) => change(masked(example, kind))),
    choices("scale", scales(example), example.scale === null || example.scale === undefined ? "usual" : String(example.scale), (scale) => change({ scale: scale === "usual" ? null : Number(scale) })),
    ...(mask === "own" ? [maskTable(example, change)] : []),
    ...(scoring === "additive" ? additiveTables(example.scoring, change) : []));
}

function scales(example) {
  const scoring = example.scoring?.kind ?? example.scoring ?? "scaled-dot";
  const usual = scoring === "scaled-dot" ? "1/√dₖ" : "as usual";
  const own = example.scale !== null && example.scale !== undefined && ![1, 0.1, 10].includes(example.scale) ? [[String(example.scale), String(example.scale)]] : [];
  return [["usual", usual], ["1", "1"], ["0.1", "0.1"], ["10", "10"], ...own];
}

function masked(example, kind) {
  const keys = example.source_tokens?.length ? example.source_tokens : example.tokens;
  const own = example.tokens.map((_, r) => keys.map((_, c) => !example.causal || c <= r));
  return { causal: kind === "causal", mask: kind === "own" ? own : null, bias: null, window: null };
}

function maskTable(example, change) {
  const keys = example.source_tokens?.length ? example.source_tokens : example.tokens;
  const mask = example.mask ?? example.tokens.map(() => keys.map(() => true));
  const turn = (row, column) => change({ mask: mask.map((line, r) => line.map((sees, c) => (r === row && c === column ? !sees : sees))) });
  const cell = (sees, r, c) => element("td", {}, element("button", { type: "button", class: "see", "aria-pressed": String(sees), "aria-label": `${example.tokens[r]} may look at ${keys[c]}`, onclick: () => turn(r, c) }, sees ? "✓" : "×"));
  return element("figure", { class: "matrix" }, element("table", {}, element("caption", {}, element("b", { class: "name" }, "mask"), element("span", { class: "says" }, "Who may look at whom; click to change.")),
    element("thead", {}, element("tr", {}, element("td", { class: "corner" }, "query ↓ key →"), keys.map((key) => element("th", { scope: "col" }, element("bdi", {}, key))))),
    element("tbody", {}, mask.map((line, r) => element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, example.tokens[r])), line.map((sees, c) => cell(sees, r, c)))))));
}

function additiveTables(scoring, change) {
  const editor = (name, values, made) => new Matrix({
    name, values, rows: values.map((_, at) => String(at + 1)), columns: values[0].map((_, at) => String(at + 1)),
    edit: { change: (row, column, value) => change({ scoring: { ...scoring, ...made(values.map((line, r) => line.map((each, c) => (r === row && c === column ? value : each)))) } }) },
  }).element;
  return [editor("W", scoring.w, (w) => ({ w })), editor("U", scoring.u, (u) => ({ u })), editor("v", [scoring.v], ([v]) => ({ v }))];
}

function widths(steps) {
  const of = (name) => steps.find((step) => step.name.endsWith(name))?.columns.length ?? 2;
  return [of("query"), of("key")];
}
