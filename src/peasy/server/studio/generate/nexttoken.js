// Next-token probabilities: the model's own, and after temperature, top-k and top-p.

import { element, table, tableDetails } from "../element.js";
import { formatCount } from "../number.js";

/**
 * @param {{choices: {piece: string, id: number, chance: number, bent: number}[], kept: number, vocabulary: number, rest: number[]}} result
 * @param {number | null} chosenId the id that was sampled at this position, if any
 * @param {(choice: {piece: string, id: number}) => void} onChoose the user continues with this token
 */
export function nextTokenPanel(result, chosenId, onChoose) {
  const bar = (value, kind) => {
    const filled = element("i", { class: kind, "aria-hidden": "true" });
    filled.style.width = `${100 * value}%`;
    return element("span", { class: "track" }, filled);
  };
  const item = (choice) => element("li", { class: [choice.bent === 0 && "cut", choice.id === chosenId && "taken"].filter(Boolean).join(" ") || null },
    element("button", { type: "button", class: "plain", "aria-label": `Continue with ${choice.piece}`, onclick: () => onChoose(choice) }, element("bdi", {}, choice.piece)),
    element("span", { class: "pair" }, bar(choice.chance, "was"), bar(choice.bent, "now")),
    element("span", { class: "number" }, choice.chance.toFixed(3), " → ", element("b", {}, choice.bent === 0 ? "cut" : choice.bent.toFixed(3))));
  const rows = [...result.choices.map(({ piece, chance, bent }) => [piece, chance.toFixed(4), bent.toFixed(4)]), ["all others", result.rest[0].toFixed(4), result.rest[1].toFixed(4)]];
  return element("div", {},
    element("p", { class: "quiet" }, "Grey: the model's probability. Coloured: after temperature, top-k and top-p. Choose a token to continue with it."),
    element("ol", { class: "effect chances", "aria-label": "Candidates" }, result.choices.map(item)),
    element("p", { class: "kept" }, `${formatCount(result.kept)} of ${formatCount(result.vocabulary)} tokens can be sampled.`),
    tableDetails(table("Candidates", ["token", "model probability", "after sampling settings"], rows)));
}
