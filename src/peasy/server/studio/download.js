// Download buttons of pictures drawn by the page: SVG, and the numbers as CSV.

import { saveBlob } from "./document.js";
import { button, element, flexRow } from "./element.js";

const INLINED_STYLES =
	"fill stroke stroke-width stroke-dasharray opacity font-family font-size font-weight text-anchor".split(" ");
const REMOVED_ATTRIBUTES = ["class", "tabindex", "data-arrows"];

/** Two buttons; `getSvg` returns the picture, `getRows` its numbers with the column names first. */
export function downloadButtons(name, getSvg, getRows) {
	const save = (label, type, getText) =>
		button(label, () => saveBlob(new Blob([getText()], { type }), `${name}.${label.toLowerCase()}`), {
			"aria-label": `Save ${name} as ${label}`,
		});
	return flexRow(
		save("SVG", "image/svg+xml", () => serializeSvg(getSvg())),
		save("CSV", "text/csv", () => getRows().map(csvLine).join("")),
	);
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
	copy.prepend(
		element("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor }),
	);
	return new XMLSerializer().serializeToString(copy);
}

/** One line of CSV; cells that a spreadsheet would take for formulas are marked as text. */
export function csvLine(cells) {
	const isFormula = (cell) => /^[=+\-@\t\r]/.test(cell) && Number.isNaN(Number(cell)) && cell !== "-inf";
	const texts = cells.map((cell) => (isFormula(cell) ? `'${cell}` : String(cell)));
	return `${texts.map((text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")}\r\n`;
}
