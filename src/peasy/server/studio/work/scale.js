// Effect of the division by √dₖ: random vectors of a chosen dimension, with and without it.

import { writeNumber } from "/web/render/numbers.js";
import { bar, card, element, fill, quiet, slider, tableDetails } from "../element.js";
import { renderDocument } from "../document.js";
import { latestOnly } from "../latest.js";

const MAX_POWER = 10; // 2^10 = 1024

/** @param {import("../shell.js").Shell} shell */
export function scalePanel(shell, dimension, onChange) {
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
				fill(summary, describe(result), tableDetails(renderDocument(response)));
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
	return card(
		"Why √dₖ",
		element("h2", "Why √dₖ?"),
		quiet(
			"One random query and eight random keys with components of variance 1. The larger the dimension, the larger " +
				"the scores; without the division one key gets almost all the weight, and the gradient vanishes.",
		),
		dimensionSlider,
		charts,
		summary,
	);
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

function describe(result) {
	const ratio = result.with.gradient / Math.max(result.without.gradient, 1e-300);
	const comparison =
		ratio > 1.05
			? ` That is ${ratio < 1000 ? writeNumber(ratio, 1) : ratio.toExponential(1)} times the gradient without.`
			: "";
	const largest = ({ weights }) => writeNumber(Math.max(...weights), 3);
	return element(
		"p",
		`At dₖ = ${result.d_k} the scores have variance ${writeNumber(result.without.variance, 2)} without and ` +
			`${writeNumber(result.with.variance, 2)} with the division. The largest weight is ` +
			`${largest(result.without)} without, ${largest(result.with)} with. ` +
			`The gradient of the softmax is ${result.with.gradient.toPrecision(3)} with the division.${comparison}`,
	);
}
