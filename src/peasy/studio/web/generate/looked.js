// What the heads looked at when a token was chosen: the text shaded by one head's weights, the largest listed.

import { element, select } from "../element.js";
import { quiet } from "../look/heads.js";

/** Attention of the text itself, as layers; a translator's looks into its source are left to Translate. */
export function layersOf(step) {
  return (step?.looked ?? []).filter(({ place }) => place.part === "attention" && place.stack === "decoder");
}

export function looked(step, pieces, layer, head, choose, caveat) {
  const layers = layersOf(step);
  if (!layers.length) return element("p", { class: "quiet" }, "This model has no attention: it carries what it has read in another way.");
  const at = layers[Math.min(layer, layers.length - 1)];
  const number = Math.min(head, at.keys.length - 1);
  const pairs = at.keys[number].map((key, place) => [key, at.weights[number][place]]);
  const most = Math.max(...pairs.map(([, weight]) => weight), 1e-9);
  const shade = new Map(pairs);
  const words = pieces.slice(0, step.computed + step.reused).map((piece, key) => {
    const weight = shade.get(key) ?? 0;
    const made = element("span", { class: "word", title: weight ? weight.toFixed(4) : null }, piece);
    if (weight) made.style.background = `color-mix(in srgb, var(--link) ${Math.round((55 * weight) / most)}%, transparent)`;
    return made;
  });
  const bar = (weight) => {
    const made = element("i", { "aria-hidden": "true" });
    made.style.width = `${100 * weight}%`;
    return element("span", { class: "track" }, made);
  };
  const options = (count) => Array.from({ length: count }, (_, place) => [String(place), String(place)]);
  return element("div", {},
    element("div", { class: "row" },
      element("label", {}, "layer ", select(options(layers.length), String(layers.indexOf(at)), (value) => choose(Number(value), number))),
      element("label", {}, "head ", select(options(at.keys.length), String(number), (value) => choose(layers.indexOf(at), Number(value))))),
    element("p", { class: "shaded", role: "img", "aria-label": `The text shaded by where this head looked to choose ${step.piece}; the numbers are listed below` }, words),
    element("div", { class: "bars" }, element("ol", { "aria-label": "Where it looked, largest first" }, pairs.map(([key, weight]) => element("li", {}, element("bdi", {}, pieces[key]), bar(weight), element("span", { class: "number" }, weight.toFixed(4)))))),
    quiet(caveat));
}
