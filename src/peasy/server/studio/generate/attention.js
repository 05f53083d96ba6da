// Attention of one generated token: the text shaded by one head's weights, and the largest weights as a list.

import { clamp, indices, reachOf, writeNumber } from "/web/render/numbers.js";
import { makeSelect } from "/web/render/figure.js";
import { bar, bdi, caveatLine, element, flexRow, quiet } from "../element.js";

/** Self-attention of the decoder, by layer; cross-attention is shown on the page Translate. */
export function selfAttentionLayers(step) {
	return (step?.attention ?? []).filter(({ path }) => path.part === "attention" && path.stack === "decoder");
}

export function attentionPanel(step, pieces, layer, head, onChoose, caveat) {
	const layers = selfAttentionLayers(step);
	if (!layers.length) return quiet("This model has no attention: its state carries the context in another way.");
	const layerIndex = clamp(layer, 0, layers.length - 1);
	const { keys, weights } = layers[layerIndex];
	const headIndex = clamp(head, 0, keys.length - 1);
	const pairs = keys[headIndex].map((key, index) => [key, weights[headIndex][index]]);
	const largest = reachOf(weights[headIndex]);
	const weightOf = new Map(pairs);
	const tokens = pieces.slice(0, step.num_computed + step.num_cached).map((piece, key) => {
		const weight = weightOf.get(key) ?? 0;
		const token = element("span.word", { title: weight ? writeNumber(weight) : null }, piece);
		if (weight)
			token.style.background = `color-mix(in srgb, var(--accent) ${Math.round((40 * weight) / largest)}%, transparent)`;
		return [token, element("wbr")];
	});
	return element(
		"div",
		flexRow(
			makeSelect("layer", indices(layers.length), layerIndex, (index) => onChoose(index, headIndex)),
			makeSelect("head", indices(keys.length), headIndex, (index) => onChoose(layerIndex, index)),
		),
		element(
			"p.shaded",
			{
				role: "img",
				"aria-label": `The text shaded by the attention weights of this head for ${step.piece}; numbers are listed below`,
			},
			tokens,
		),
		element(
			"div.bars",
			element(
				"ol",
				{ "aria-label": "Attention weights, largest first" },
				pairs.map(([key, weight]) =>
					element("li", bdi(pieces[key]), bar(weight), element("span.number", writeNumber(weight))),
				),
			),
		),
		caveatLine(caveat),
	);
}
