// The cache while it grows: one row a layer, one column a token; grey is reused, coloured is new.

import { element } from "../element.js";
import { count } from "../number.js";

/**
 * @param {string[]} pieces all tokens that had been read at this step
 * @param {{computed: number, reused: number}} step
 * @param {number} layers
 */
export function cachePicture(pieces, step, layers) {
  const length = step.computed + step.reused;
  const row = (layer) => element("div", { class: "cache-row" }, element("span", { class: "side" }, `layer ${layer}`), pieces.slice(0, length).map((_, at) => element("i", { class: at < step.reused ? "reused" : "fresh" })));
  const said = `This token: ${count(step.computed)} ${step.computed === 1 ? "token" : "tokens"} through every layer, ${count(step.reused)} reused from the cache.`;
  return element("div", {},
    element("p", {}, said),
    element("div", { class: "cache", role: "img", "aria-label": said }, Array.from({ length: layers }, (_, layer) => row(layer))),
    element("p", { class: "quiet legend" }, element("i", { class: "reused" }), " reused keys and values ", element("i", { class: "fresh" }), " computed now"));
}
