// Attention of one generated token: the text shaded by one head's weights, and the largest weights as a list.

import { element, select } from "../element.js";
import { caveatLine } from "../look/ranking.js";

/** Self-attention of the decoder, by layer; cross-attention is shown on the page Translate. */
export function selfAttentionLayers(step) {
  return (step?.looked ?? []).filter(({ place }) => place.part === "attention" && place.stack === "decoder");
}

export function attentionPanel(step, pieces, layer, head, onChoose, caveat) {
  const layers = selfAttentionLayers(step);
  if (!layers.length) return element("p", { class: "quiet" }, "This model has no attention: its state carries the context in another way.");
  const layerIndex = Math.min(layer, layers.length - 1);
  const { keys, weights } = layers[layerIndex];
  const headIndex = Math.min(head, keys.length - 1);
  const pairs = keys[headIndex].map((key, index) => [key, weights[headIndex][index]]);
  const largest = Math.max(...pairs.map(([, weight]) => weight), 1e-9);
  const weightOf = new Map(pairs);
  const tokens = pieces.slice(0, step.computed + step.reused).map((piece, key) => {
    const weight = weightOf.get(key) ?? 0;
    const token = element("span", { class: "word", title: weight ? weight.toFixed(4) : null }, piece);
    if (weight) token.style.background = `color-mix(in srgb, var(--link) ${Math.round((55 * weight) / largest)}%, transparent)`;
    return token;
  });
  const bar = (weight) => {
    const filled = element("i", { "aria-hidden": "true" });
    filled.style.width = `${100 * weight}%`;
    return element("span", { class: "track" }, filled);
  };
  const options = (count) => Array.from({ length: count }, (_, index) => [String(index), String(index)]);
  return element("div", {},
    element("div", { class: "row" },
      element("label", {}, "layer ", select(options(layers.length), String(layerIndex), (value) => onChoose(Number(value), headIndex))),
      element("label", {}, "head ", select(options(keys.length), String(headIndex), (value) => onChoose(layerIndex, Number(value))))),
    element("p", { class: "shaded", role: "img", "aria-label": `The text shaded by the attention weights of this head for ${step.piece}; the numbers are listed below` }, tokens),
    element("div", { class: "bars" }, element("ol", { "aria-label": "Attention weights, largest first" }, pairs.map(([key, weight]) => element("li", {}, element("bdi", {}, pieces[key]), bar(weight), element("span", { class: "number" }, weight.toFixed(4)))))),
    caveatLine(caveat));
}
