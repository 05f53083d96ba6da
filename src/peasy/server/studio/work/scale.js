// Effect of the division by √dₖ: random vectors of a chosen dimension, with and without it.

import { element, slider, table, tableDetails } from "../element.js";

const MAX_POWER = 10; // 2^10 = 1024

/** @param {import("../shell.js").Shell} shell */
export function scalePanel(shell, dimension, onChange) {
  const charts = element("div", { class: "bars-pair" });
  const summary = element("div", {});
  let requestCount = 0;
  const show = async (power) => {
    const turn = (requestCount += 1);
    try {
      const { result } = await shell.request("scale", { d_k: 2 ** power });
      if (turn !== requestCount) return;
      charts.replaceChildren(weightBars("Without: softmax(q·k)", result.without), weightBars("With: softmax(q·k / √dₖ)", result.with));
      summary.replaceChildren(describe(result), tableDetails(numbersTable(result)));
    } catch (error) {
      shell.showError(error, summary);
    }
  };
  const dimensionSlider = slider("dₖ", { min: 0, max: MAX_POWER, step: 1, value: Math.round(Math.log2(dimension)), write: (power) => String(2 ** power) }, (power) => {
    onChange(2 ** power);
    show(power);
  });
  show(Math.round(Math.log2(dimension)));
  return element("section", { class: "card", "aria-label": "Why √dₖ" },
    element("h2", {}, "Why √dₖ?"),
    element("p", { class: "quiet" }, "One random query and eight random keys with components of variance 1. The larger the dimension, the larger the scores; without the division one key gets almost all the weight, and the gradient vanishes."),
    dimensionSlider, charts, summary);
}

function weightBars(title, side) {
  const largest = Math.max(...side.weights);
  return element("figure", { class: "bars" }, element("figcaption", {}, title),
    element("ol", { "aria-label": title }, side.weights.map((weight, index) => {
      const bar = element("i", { "aria-hidden": "true" });
      bar.style.width = `${100 * weight}%`;
      return element("li", { class: weight === largest ? "most" : null }, element("span", {}, `key ${index + 1}`), element("span", { class: "track" }, bar), element("span", { class: "number" }, weight.toFixed(4)));
    })));
}

function describe(result) {
  const ratio = result.with.gradient / Math.max(result.without.gradient, 1e-300);
  const comparison = ratio > 1.05 ? ` That is ${ratio < 1000 ? ratio.toFixed(1) : ratio.toExponential(1)} times the gradient without.` : "";
  return element("p", {}, `At dₖ = ${result.d_k} the scores have variance ${result.without.variance.toFixed(2)} without and ${result.with.variance.toFixed(2)} with the division. The largest weight is ${Math.max(...result.without.weights).toFixed(3)} without, ${Math.max(...result.with.weights).toFixed(3)} with. The gradient of the softmax is ${result.with.gradient.toPrecision(3)} with the division.${comparison}`);
}

function numbersTable(result) {
  const rows = ["variance", "entropy", "gradient"].map((name) => [name, result.without[name].toPrecision(4), result.with[name].toPrecision(4)]);
  return table(`dₖ = ${result.d_k}, ${result.draws} draws`, ["scores and weights", "without", "with 1/√dₖ"], rows);
}
