// What every head does across the sentences of the text, ranked; a click goes to the head.

import { element, select } from "../element.js";
import { drawing } from "../draw.js";

export const RANKS = ["sharpness", "entropy", "previous", "next", "first", "own", "same", "induction", "position", "distance"];
const SHOWN = ["entropy", "sharpness", "previous", "next", "first", "own", "same", "induction", "position", "distance"];
const MOST = 60;

/** The ranking as a table whose first column leads to the head, and the distance profiles of the first ones. */
export function ranking(answer, by, choose, rank) {
  const { heads, sentences, tokens, caveat } = answer.result;
  const ranked = heads.filter((head) => head[by] !== null).sort((one, other) => other[by] - one[by]).slice(0, MOST);
  const name = ({ place, head }) => `${place.layer}.${head}`;
  const open = (each) => element("button", { type: "button", class: "plain", "aria-label": `Layer ${each.place.layer}, head ${each.head}: show it`, onclick: () => choose(each.place.layer, each.head) }, name(each));
  const cell = (each, score) => element("td", { class: score === by ? "chosen" : null }, each[score] === null ? "–" : each[score].toFixed(2));
  const made = element("figure", { class: "table", tabindex: 0 }, element("table", {},
    element("caption", {}, element("b", {}, `Most ${by} first`)),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "head"), SHOWN.map((score) => element("th", { scope: "col" }, score)))),
    element("tbody", {}, ranked.map((each) => element("tr", {}, element("th", { scope: "row" }, open(each)), SHOWN.map((score) => cell(each, score)))))));
  const profile = drawing(answer).querySelector("figure.picture");
  return element("div", {},
    element("div", { class: "row" }, element("label", {}, "rank by ", select(RANKS, by, rank))),
    element("p", { class: "quiet" }, `${sentences} ${sentences === 1 ? "sentence" : "sentences"}, ${tokens} tokens. Scores are shares of attention, entropy is in bits, distance in places.`),
    made, profile, quiet(caveat));
}

/** The line beside every attention picture. */
export function quiet(caveat) {
  return element("p", { class: "quiet caveat" }, caveat.charAt(0).toUpperCase() + caveat.slice(1));
}
