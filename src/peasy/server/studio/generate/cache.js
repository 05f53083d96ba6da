// KV cache while it grows: one row per layer, one column per token; grey is cached, coloured is new.

import { formatCount, indices } from "/web/render/numbers.js";
import { element } from "../element.js";

/** `pieces` are all tokens processed up to this step. */
export function cachePicture(pieces, step, numLayers) {
	const tokens = pieces.slice(0, step.num_computed + step.num_cached);
	const cell = (isCached) => element("i", { class: isCached ? null : "new" });
	const layerRow = (layer) =>
		element(
			"div.cache-row",
			element("span.side", `layer ${layer}`),
			tokens.map((_, index) => cell(index < step.num_cached)),
		);
	const computed = `${formatCount(step.num_computed)} ${step.num_computed === 1 ? "token" : "tokens"} computed`;
	const summary = `This step: ${computed} in every layer, ${formatCount(step.num_cached)} reused from the KV cache.`;
	return element(
		"div",
		element("p", summary),
		element("div.cache", { role: "img", "aria-label": summary }, indices(numLayers).map(layerRow)),
		element("p.quiet.legend", cell(true), " cached keys and values ", cell(false), " computed now"),
	);
}
