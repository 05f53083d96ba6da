// Documents rendered by the server (tables, maps, links, formulas), with explained cells and interactive figures.

import { explainCells } from "/web/render/arithmetic.js";
import "/web/render/maps.js";
import "/web/render/links.js";
import "/web/render/scatter.js";
import { fetchFile } from "./api.js";
import { element } from "./element.js";

const INTERACTIVE = "peasy-maps, peasy-links, peasy-plane";

/**
 * The rendered document of a response (requested with `html: true`) as an element.
 * The server escapes all text in it, and scripts parsed this way never run.
 */
export function renderDocument(response) {
	const parsed = new DOMParser().parseFromString(response.html, "text/html");
	const content = parsed.querySelector("main") ?? parsed.body;
	content.querySelector(":scope > h1")?.remove();
	const container = element("div.drawn");
	const figureData = takeFigureData(content);
	container.append(...document.importNode(content, true).childNodes);
	container.querySelectorAll(INTERACTIVE).forEach((figure, index) => {
		if (figureData[index]) figure.data = figureData[index];
	});
	// Tables may scroll horizontally: make them reachable by keyboard.
	container.querySelectorAll("figure, div.formula").forEach((scroller) => {
		if (!scroller.querySelector("[data-cell]")) scroller.tabIndex = 0;
	});
	explainCells(container, response.arithmetic ?? {});
	return container;
}

// The data of interactive figures is in script elements, which trusted types forbid to import: it is set as a property.
function takeFigureData(content) {
	return [...content.querySelectorAll(INTERACTIVE)].map((figure) => {
		const script = figure.querySelector(':scope > script[type="application/json"]');
		script?.remove();
		return script ? JSON.parse(script.textContent) : null;
	});
}

/** Save the result of a command as a file rendered by the server; returns the file's name. */
export async function saveResult(command, body, format, options, edit) {
	const { blob, name } = await fetchFile(`api/${command}`, { ...body, format }, options);
	saveBlob(edit ? new Blob([edit(await blob.text())], { type: blob.type }) : blob, name);
	return name;
}

export function saveBlob(blob, name) {
	const link = element("a", { href: URL.createObjectURL(blob), download: name });
	document.body.append(link);
	link.click();
	link.remove();
	setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
