// Next-token probabilities: the model's own, and after temperature, top-k and top-p.

import { writeNumber } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import { bar, bdi, button, element, quiet, tableDetails } from "../element.js";

/** `chosenId` is the id that was sampled here, if any; `onChoose` gets the token that the user continues with. */
export function nextTokenPanel(response, chosenId, onChoose) {
	const item = (choice) => {
		const { piece, id, probability, adjusted_probability: adjusted } = choice;
		const classes = [adjusted === 0 && "cut", id === chosenId && "taken"].filter(Boolean);
		return element(
			"li",
			{ class: classes.join(" ") },
			button(bdi(piece), () => onChoose(choice), { "aria-label": `Continue with ${piece}` }),
			element("span.pair", bar(probability, "was"), bar(adjusted)),
			element(
				"span.number",
				writeNumber(probability, 3),
				" → ",
				element("b", adjusted === 0 ? "cut" : writeNumber(adjusted, 3)),
			),
		);
	};
	const numbers = renderDocument(response);
	return element(
		"div",
		quiet(
			"Grey: the model's probability. Coloured: after temperature, top-k and top-p. Choose a token to continue with it.",
		),
		element("ol.effect.candidates", { "aria-label": "Candidates" }, response.result.choices.map(item)),
		numbers.querySelector("p"), // how many tokens can be sampled
		tableDetails(numbers),
	);
}
