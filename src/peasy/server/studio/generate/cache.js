// KV cache while it grows: one row per layer, one column per token; grey is reused, coloured is new.

import { element } from "../element.js";
import { formatCount } from "../number.js";

/**
 * @param {string[]} pieces all tokens processed up to this step
 * @param {{computed: number, reused: number}} step
 * @param {number} numLayers
 */
export function cachePicture(pieces, step, numLayers) {
  const length = step.computed + step.reused;
  const row = (layer) => element("div", { class: "cache-row" }, element("span", { class: "side" }, `layer ${layer}`), pieces.slice(0, length).map((_, index) => element("i", { class: index < step.reused ? "reused" : "fresh" })));
  const summary = `This step: ${formatCount(step.computed)} ${step.computed === 1 ? "token" : "tokens"} computed in every layer, ${formatCount(step.reused)} reused from the KV cache.`;
  return element("div", {},
    element("p", {}, summary),
    element("div", { class: "cache", role: "img", "aria-label": summary }, Array.from({ length: numLayers }, (_, layer) => row(layer))),
    element("p", { class: "quiet legend" }, element("i", { class: "reused" }), " reused keys and values ", element("i", { class: "fresh" }), " computed now"));
}
