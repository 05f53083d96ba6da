// Ranking of all attention heads by a score over the sentences of the text; a click opens the head.

import { element, select } from "../element.js";
import { renderDocument } from "../document.js";

export const SCORES = ["sharpness", "entropy", "previous", "next", "first", "own", "same", "induction", "position", "distance"];
const COLUMNS = ["entropy", "sharpness", "previous", "next", "first", "own", "same", "induction", "position", "distance"];
const MAX_HEADS = 60;

/** The ranking as a table whose first column opens the head, and the distance profiles of the first heads. */
export function rankingPanel(response, sortBy, onChooseHead, onSort) {
  const { heads, sentences, tokens, caveat } = response.result;
  const ranked = heads.filter((head) => head[sortBy] !== null).sort((one, other) => other[sortBy] - one[sortBy]).slice(0, MAX_HEADS);
  const headButton = ({ place, head }) => element("button", { type: "button", class: "plain", "aria-label": `Layer ${place.layer}, head ${head}: show it`, onclick: () => onChooseHead(place.layer, head) }, `${place.layer}.${head}`);
  const cell = (head, score) => element("td", { class: score === sortBy ? "chosen" : null }, head[score] === null ? "–" : head[score].toFixed(2));
  const ranking = element("figure", { class: "table", tabindex: 0 }, element("table", {},
    element("caption", {}, element("b", {}, `Heads by ${sortBy}, largest first`)),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "head"), COLUMNS.map((score) => element("th", { scope: "col" }, score)))),
    element("tbody", {}, ranked.map((head) => element("tr", {}, element("th", { scope: "row" }, headButton(head)), COLUMNS.map((score) => cell(head, score)))))));
  const profile = renderDocument(response).querySelector("figure.picture");
  return element("div", {},
    element("div", { class: "row" }, element("label", {}, "rank by ", select(SCORES, sortBy, onSort))),
    element("p", { class: "quiet" }, `${sentences} ${sentences === 1 ? "sentence" : "sentences"}, ${tokens} tokens. Scores are fractions of attention; entropy is in bits, distance in positions.`),
    ranking, profile, caveatLine(caveat));
}

/** The caveat below every attention picture. */
export function caveatLine(caveat) {
  return element("p", { class: "quiet caveat" }, caveat.charAt(0).toUpperCase() + caveat.slice(1));
}
