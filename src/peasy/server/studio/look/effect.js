// Effect of ablated heads on the next token: probabilities before and after, side by side.

import { writeNumber } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import { bar, bdi, element, quiet, tableDetails } from "../element.js";

export function nextTokenLine(candidates) {
	if (!candidates?.length) return "";
	return element(
		"p.next",
		element("span.quiet", "next token: "),
		candidates.map(({ piece, probability }) =>
			element("span.chip", bdi(piece), " ", element("b", writeNumber(probability, 2))),
		),
	);
}

/** Bars before and after an intervention, for every token that is likely in one of the two. */
export function effectPanel(response) {
	const { result } = response;
	const byId = new Map();
	for (const side of ["before", "after"]) {
		for (const { piece, id, probability } of result[side])
			byId.set(id, { piece, ...byId.get(id), [side]: probability });
	}
	const tokens = [...byId.values()];
	if (!tokens.length) return quiet("This model does not predict a next token.");
	const written = (value) => (value === undefined ? "–" : writeNumber(value, 3));
	const list = element(
		"ol.effect",
		{ "aria-label": "Next token before and after" },
		tokens.map(({ piece, before, after }) =>
			element(
				"li",
				bdi(piece),
				element("span.pair", bar(before ?? 0, "was"), bar(after ?? 0)),
				element("span.number", `${written(before)} → ${written(after)}`),
			),
		),
	);
	return element("div", list, tableDetails(renderDocument(response)));
}
