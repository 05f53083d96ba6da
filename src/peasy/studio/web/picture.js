// Pictures that the page draws itself, as files: what is seen as SVG, and its numbers as CSV.

import { saveBlob } from "./draw.js";
import { button, element } from "./element.js";

const SEEN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];

/** Two buttons; `svg` gives the picture and `rows` its numbers, the names of the columns first. */
export function files(name, svg, rows) {
  return element("p", { class: "row files" },
    button("SVG", () => saveBlob(new Blob([standing(svg())], { type: "image/svg+xml" }), `${name}.svg`), { "aria-label": `Save ${name} as SVG` }),
    button("CSV", () => saveBlob(new Blob([rows().map(line).join("")], { type: "text/csv" }), `${name}.csv`), { "aria-label": `Save ${name} as CSV` }));
}

/** The picture with its colours and letters written into it: away from this page no style sheet says them. */
function standing(svg) {
  const copy = svg.cloneNode(true);
  const [seen, written] = [svg, copy].map((each) => [each, ...each.querySelectorAll("*")]);
  seen.forEach((part, at) => {
    const style = getComputedStyle(part);
    for (const each of SEEN) written[at].setAttribute(each, style.getPropertyValue(each));
    for (const each of ["class", "tabindex", "data-arrows"]) written[at].removeAttribute(each);
  });
  const paper = element("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

/** One row; what a spreadsheet would take for a formula is marked as text. */
function line(cells) {
  const said = cells.map((cell) => (typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) && Number.isNaN(Number(cell)) ? `'${cell}` : String(cell)));
  return `${said.map((cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(",")}\r\n`;
}
