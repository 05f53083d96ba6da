// Ranking of all attention heads by a score over the sentences of the text; a click opens the head.

import { writeNumber } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import { button, caveatLine, element, flexRow, quiet, select, table } from "../element.js";

const SCORES = "sharpness entropy previous next first own same induction position distance".split(" ");
const MAX_HEADS = 60;

/** The ranking as a table whose first column opens the head, and the distance profiles of the first heads. */
export function rankingPanel(response, sortBy, onChooseHead, onSort) {
	const { heads, sentences, tokens, caveat } = response.result;
	const ranked = heads
		.filter((head) => head[sortBy] !== null)
		.sort((one, other) => other[sortBy] - one[sortBy])
		.slice(0, MAX_HEADS);
	const headButton = ({ path: { layer }, head }) =>
		button(`${layer}.${head}`, () => onChooseHead(layer, head), {
			"aria-label": `Layer ${layer}, head ${head}: show it`,
		});
	const scoreOf = (head, score) =>
		element(score === sortBy ? "b" : "span", {}, Number.isFinite(head[score]) ? writeNumber(head[score], 2) : "–");
	const rows = ranked.map((head) => [headButton(head), ...SCORES.map((score) => scoreOf(head, score))]);
	return element(
		"div",
		flexRow(element("label", "rank by ", select(SCORES, sortBy, onSort))),
		quiet(
			`${sentences} ${sentences === 1 ? "sentence" : "sentences"}, ${tokens} tokens. Scores are fractions of ` +
				"attention; entropy is in bits, distance in positions.",
		),
		table(`Heads by ${sortBy}, largest first`, ["head", ...SCORES], rows),
		renderDocument(response).querySelector("figure.picture"),
		caveatLine(caveat),
	);
}
