// Effect of ablated heads on the next token: probabilities before and after, side by side.

import { element, table, tableDetails } from "../element.js";
import { formatProbability } from "../number.js";

/** Parse heads of the URL: "2.3" is layer 2, head 3. */
export function readHeads(text) {
  return (text ?? "").split(",").map((name) => /^(\d+)\.(\d+)$/.exec(name)).filter(Boolean).map(([, layer, head]) => ({ layer: Number(layer), head: Number(head) }));
}

export function writeHeads(heads) {
  return heads.map(({ layer, head }) => `${layer}.${head}`).join(",");
}

export function ablations(heads) {
  return heads.map(({ layer, head }) => ({ kind: "off", layer, head }));
}

/** The most likely next tokens in one line. */
export function nextTokenLine(candidates) {
  if (!candidates?.length) return null;
  return element("p", { class: "next" }, element("span", { class: "quiet" }, "next token: "), candidates.map(({ piece, chance }) => element("span", { class: "chip" }, element("bdi", {}, piece), " ", element("b", {}, formatProbability(chance)))));
}

/** Bars before and after an intervention, for every token that is likely in one of the two. */
export function effectPanel(result) {
  const byId = new Map();
  for (const [side, candidates] of [["before", result.before], ["after", result.after]]) {
    for (const { piece, id, chance } of candidates) byId.set(id, { piece, ...byId.get(id), [side]: chance });
  }
  const rows = [...byId.values()];
  if (!rows.length) return element("p", { class: "quiet" }, "This model does not predict a next token.");
  const bar = (value, kind) => {
    const filled = element("i", { class: kind, "aria-hidden": "true" });
    filled.style.width = `${100 * (value ?? 0)}%`;
    return element("span", { class: "track" }, filled);
  };
  const written = (value) => (value === undefined ? "–" : formatProbability(value, 3));
  const list = element("ol", { class: "effect", "aria-label": "Next token before and after" }, rows.map(({ piece, before, after }) => element("li", {}, element("bdi", {}, piece), element("span", { class: "pair" }, bar(before, "was"), bar(after, "now")), element("span", { class: "number" }, `${written(before)} → ${written(after)}`))));
  const change = ({ before, after }) => (before === undefined || after === undefined ? "" : (after - before).toFixed(4));
  const numbers = table("Next token", ["token", "before", "after", "change"], rows.map((row) => [row.piece, row.before?.toFixed(4) ?? "–", row.after?.toFixed(4) ?? "–", change(row)]));
  const note = result.divergence === null || result.divergence === undefined ? null : element("p", { class: "quiet" }, `Divergence of the two distributions: ${result.divergence.toFixed(4)} bits. “–”: not among the most likely tokens.`);
  return element("div", {}, list, note, tableDetails(numbers));
}
