// Download buttons of pictures drawn by the page: SVG, and the numbers as CSV.

import { saveBlob } from "./document.js";
import { button, element } from "./element.js";

const INLINED_STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
const REMOVED_ATTRIBUTES = ["class", "tabindex", "data-arrows"];

/** Two buttons; `getSvg` returns the picture, `getRows` its numbers with the column names first. */
export function downloadButtons(name, getSvg, getRows) {
  return element("p", { class: "row files" },
    button("SVG", () => saveBlob(new Blob([serializeSvg(getSvg())], { type: "image/svg+xml" }), `${name}.svg`), { "aria-label": `Save ${name} as SVG` }),
    button("CSV", () => saveBlob(new Blob([getRows().map(csvLine).join("")], { type: "text/csv" }), `${name}.csv`), { "aria-label": `Save ${name} as CSV` }));
}

/** The picture with its computed styles inlined: the file has no style sheet. */
function serializeSvg(svg) {
  const copy = svg.cloneNode(true);
  const [sources, targets] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  sources.forEach((source, index) => {
    const style = getComputedStyle(source);
    for (const name of INLINED_STYLES) targets[index].setAttribute(name, style.getPropertyValue(name));
    for (const name of REMOVED_ATTRIBUTES) targets[index].removeAttribute(name);
  });
  copy.prepend(element("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor }));
  return new XMLSerializer().serializeToString(copy);
}

/** One CSV line; cells that a spreadsheet would take for formulas are marked as text. */
function csvLine(cells) {
  const isFormula = (cell) => typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) && Number.isNaN(Number(cell));
  const texts = cells.map((cell) => (isFormula(cell) ? `'${cell}` : String(cell)));
  return `${texts.map((text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")}\r\n`;
}
