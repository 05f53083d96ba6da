// What could come next: the model's own chances, and what temperature, top-k and top-p make of them.

import { asTable, element, table } from "../element.js";
import { count } from "../number.js";

/**
 * @param {{choices: {piece: string, id: number, chance: number, bent: number}[], kept: number, vocabulary: number, rest: number[]}} result
 * @param {number | null} taken the id that was chosen here, if one was
 * @param {(choice: {piece: string, id: number}) => void} choose a person takes this one
 */
export function chances(result, taken, choose) {
  const bar = (value, kind) => {
    const made = element("i", { class: kind, "aria-hidden": "true" });
    made.style.width = `${100 * value}%`;
    return element("span", { class: "track" }, made);
  };
  const line = (each) => element("li", { class: [each.bent === 0 && "cut", each.id === taken && "taken"].filter(Boolean).join(" ") || null },
    element("button", { type: "button", class: "plain", "aria-label": `Continue with ${each.piece}`, onclick: () => choose(each) }, element("bdi", {}, each.piece)),
    element("span", { class: "pair" }, bar(each.chance, "was"), bar(each.bent, "now")),
    element("span", { class: "number" }, each.chance.toFixed(3), " → ", element("b", {}, each.bent === 0 ? "cut" : each.bent.toFixed(3))));
  const rows = [...result.choices.map(({ piece, chance, bent }) => [piece, chance.toFixed(4), bent.toFixed(4)]), ["all others", result.rest[0].toFixed(4), result.rest[1].toFixed(4)]];
  return element("div", {},
    element("p", { class: "quiet" }, "Grey: the model's own chance. Coloured: after temperature, top-k and top-p. Choose one to go on with it."),
    element("ol", { class: "effect chances", "aria-label": "Candidates" }, result.choices.map(line)),
    element("p", { class: "kept" }, `${count(result.kept)} of ${count(result.vocabulary)} tokens can be drawn.`),
    asTable(table("Candidates", ["token", "the model's chance", "chance after"], rows)));
}
