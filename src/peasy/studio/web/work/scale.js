// Why the scores are divided by √dₖ: random vectors of a width that a slider chooses, with the division and without.

import { asTable, element, slider, table } from "../element.js";

const MOST = 10; // 2^10 = 1024

/** @param {import("../shell.js").Shell} shell */
export function scalePanel(shell, width, changed) {
  const home = element("div", { class: "bars-pair" });
  const told = element("div", {});
  let running = 0;
  const show = async (power) => {
    const turn = (running += 1);
    try {
      const { result } = await shell.ask("scale", { d_k: 2 ** power });
      if (turn !== running) return;
      home.replaceChildren(bars("Without: softmax(q·k)", result.without), bars("With: softmax(q·k / √dₖ)", result.with));
      told.replaceChildren(sentence(result), asTable(numbers(result)));
    } catch (error) {
      shell.fail(error, told);
    }
  };
  const moved = slider("dₖ", { min: 0, max: MOST, step: 1, value: Math.round(Math.log2(width)), write: (power) => String(2 ** power) }, (power) => {
    changed(2 ** power);
    show(power);
  });
  show(Math.round(Math.log2(width)));
  return element("section", { class: "card", "aria-label": "Why √dₖ" },
    element("h2", {}, "Why √dₖ?"),
    element("p", { class: "quiet" }, "One random query against eight random keys, every number of variance 1. The wider the vectors, the larger the scores; without the division one key takes everything, and nothing is left to learn from."),
    moved, home, told);
}

function bars(title, side) {
  const most = Math.max(...side.weights);
  return element("figure", { class: "bars" }, element("figcaption", {}, title),
    element("ol", { "aria-label": title }, side.weights.map((weight, at) => {
      const bar = element("i", { "aria-hidden": "true" });
      bar.style.width = `${100 * weight}%`;
      return element("li", { class: weight === most ? "most" : null }, element("span", {}, `key ${at + 1}`), element("span", { class: "track" }, bar), element("span", { class: "number" }, weight.toFixed(4)));
    })));
}

function sentence(result) {
  const shrunk = result.with.gradient / Math.max(result.without.gradient, 1e-300);
  const compared = shrunk > 1.05 ? ` That is ${shrunk < 1000 ? shrunk.toFixed(1) : shrunk.toExponential(1)} times what is left without.` : "";
  return element("p", {}, `At dₖ = ${result.d_k} the scores have variance ${result.without.variance.toFixed(2)} without and ${result.with.variance.toFixed(2)} with the division. The largest weight is ${Math.max(...result.without.weights).toFixed(3)} without, ${Math.max(...result.with.weights).toFixed(3)} with. The gradient of the softmax is ${result.with.gradient.toPrecision(3)} with the division.${compared}`);
}

function numbers(result) {
  const lines = ["variance", "entropy", "gradient"].map((name) => [name, result.without[name].toPrecision(4), result.with[name].toPrecision(4)]);
  return table(`dₖ = ${result.d_k}, ${result.draws} draws`, ["of the scores and weights", "without", "with 1/√dₖ"], lines);
}
