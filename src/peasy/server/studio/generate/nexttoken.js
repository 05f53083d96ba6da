// Next-token probabilities: the model's own, and after temperature, top-k and top-p.

import { formatCount, writeNumber } from "/web/render/numbers.js";
import { bar, bdi, button, element, quiet, table, tableDetails } from "../element.js";

/** `chosenId` is the id that was sampled here, if any; `onChoose` gets the token that the user continues with. */
export function nextTokenPanel({ choices, num_candidates, vocab_size, rest }, chosenId, onChoose) {
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
	const rows = [
		...choices.map(({ piece, probability, adjusted_probability: adjusted }) => [piece, probability, adjusted]),
		["all others", ...rest],
	];
	return element(
		"div",
		quiet(
			"Grey: the model's probability. Coloured: after temperature, top-k and top-p. Choose a token to continue with it.",
		),
		element("ol.effect.candidates", { "aria-label": "Candidates" }, choices.map(item)),
		element("p", `${formatCount(num_candidates)} of ${formatCount(vocab_size)} tokens can be sampled.`),
		tableDetails(
			table(
				"Candidates",
				["token", "model probability", "after sampling settings"],
				rows.map(([piece, ...numbers]) => [piece, ...numbers.map((number) => writeNumber(number, 4))]),
			),
		),
	);
}
