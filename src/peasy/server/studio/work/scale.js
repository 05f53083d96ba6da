// Effect of the division by √dₖ: random vectors of a chosen dimension, with and without it.

import { writeNumber } from "/web/render/numbers.js";
import { bar, card, element, fill, quiet, slider } from "../element.js";
import { renderDocument } from "../document.js";
import { latestOnly } from "../latest.js";

const MAX_POWER = 10; // 2^10 = 1024

/** @param {import("../shell.js").Shell} shell */
export function scalePanel(shell, text, dimension, onChange) {
	const charts = element("div.bars-pair");
	const summary = element("div");
	const runLatest = latestOnly(shell, charts, summary);
	const show = (power) =>
		runLatest(
			(options) => shell.request("scale", { d_k: 2 ** power, html: true }, options),
			(response) => {
				const { result } = response;
				fill(
					charts,
					weightBars("Without: softmax(q·k)", result.without),
					weightBars("With: softmax(q·k / √dₖ)", result.with),
				);
				const numbers = renderDocument(response);
				numbers.querySelector("figure.matrix").remove(); // the weights, which are drawn
				fill(summary, numbers);
			},
		);
	const power = Math.round(Math.log2(dimension));
	const dimensionSlider = slider(
		"dₖ",
		{ min: 0, max: MAX_POWER, value: power, write: (chosen) => String(2 ** chosen) },
		(chosen) => {
			onChange(2 ** chosen);
			show(chosen);
		},
	);
	show(power);
	return card("Why √dₖ", element("h2", "Why √dₖ?"), quiet(text), dimensionSlider, charts, summary);
}

function weightBars(title, side) {
	const largest = Math.max(...side.weights);
	return element(
		"figure.bars",
		element("figcaption", title),
		element(
			"ol",
			{ "aria-label": title },
			side.weights.map((weight, index) =>
				element(
					"li",
					{ class: weight === largest && "most" },
					element("span", `key ${index + 1}`),
					bar(weight),
					element("span.number", writeNumber(weight)),
				),
			),
		),
	);
}
