// Effect of ablated heads on the next token: probabilities before and after, side by side.

import { writeNumber } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import { bar, bdi, element, quiet, tableDetails } from "../element.js";

/** A probability: <0.01, not 0.00. */
const write = (p, digits) => (p < 0.5 / 10 ** digits ? `<${10 ** -digits}` : writeNumber(p, digits));

export function nextTokenLine(candidates) {
	if (!candidates?.length) return "";
	return element(
		"p.next",
		element("span.quiet", "next token: "),
		candidates.map(({ piece, probability }) =>
			element("span.chip", bdi(piece), " ", element("b", write(probability, 2))),
		),
	);
}

/** Bars before and after an intervention, for every token that is likely in one of the two. */
export function effectPanel(response) {
	const { result } = response;
	const byId = new Map();
	for (const side of ["before", "after"])
		for (const { piece, id, probability } of result[side])
			byId.set(id, { piece, ...byId.get(id), [side]: probability });
	if (!byId.size) return quiet("This model does not predict a next token.");
	const written = (value) => (value === undefined ? "–" : write(value, 3));
	const list = element(
		"ol.effect",
		{ "aria-label": "Next token before and after" },
		Array.from(byId.values(), ({ piece, before, after }) =>
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
