// What a switched-off head does to the next word: before and after, side by side.

import { asTable, element, table } from "../element.js";
import { share } from "../number.js";

/** Names of heads as they stand in the URL: "2.3" is layer 2, head 3. */
export function readHeads(text) {
  return (text ?? "").split(",").map((each) => /^(\d+)\.(\d+)$/.exec(each)).filter(Boolean).map(([, layer, head]) => ({ layer: Number(layer), head: Number(head) }));
}

export function writeHeads(heads) {
  return heads.map(({ layer, head }) => `${layer}.${head}`).join(",");
}

export function asEdits(heads) {
  return heads.map(({ layer, head }) => ({ kind: "off", layer, head }));
}

/** The likeliest next words as one line of chips. */
export function nextLine(candidates) {
  if (!candidates?.length) return null;
  return element("p", { class: "next" }, element("span", { class: "quiet" }, "next word: "), candidates.map(({ piece, chance }) => element("span", { class: "chip" }, element("bdi", {}, piece), " ", element("b", {}, share(chance)))));
}

/** Bars before and after an edit, for every word that is likely in one of the two. */
export function effect(result) {
  const lines = new Map();
  for (const [side, listed] of [["before", result.before], ["after", result.after]]) {
    for (const { piece, id, chance } of listed) lines.set(id, { piece, ...lines.get(id), [side]: chance });
  }
  const rows = [...lines.values()];
  if (!rows.length) return element("p", { class: "quiet" }, "This model does not say a next word.");
  const bar = (value, kind) => {
    const made = element("i", { class: kind, "aria-hidden": "true" });
    made.style.width = `${100 * (value ?? 0)}%`;
    return element("span", { class: "track" }, made);
  };
  const written = (value) => (value === undefined ? "–" : share(value, 3));
  const list = element("ol", { class: "effect", "aria-label": "Next word before and after" }, rows.map(({ piece, before, after }) => element("li", {}, element("bdi", {}, piece), element("span", { class: "pair" }, bar(before, "was"), bar(after, "now")), element("span", { class: "number" }, `${written(before)} → ${written(after)}`))));
  const change = ({ before, after }) => (before === undefined || after === undefined ? "" : (after - before).toFixed(4));
  const numbers = table("Next word", ["word", "before", "after", "change"], rows.map((row) => [row.piece, row.before?.toFixed(4) ?? "–", row.after?.toFixed(4) ?? "–", change(row)]));
  const said = result.divergence === null || result.divergence === undefined ? null : element("p", { class: "quiet" }, `${result.divergence.toFixed(4)} bits lie between the two distributions. – stands for: not among the likeliest.`);
  return element("div", {}, list, said, asTable(numbers));
}
