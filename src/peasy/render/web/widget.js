// Notebook widget (anywidget): renders the page in a shadow root, so that page and notebook do not style each other.

import { explainCells } from "./arithmetic.js";

function render({ model, el }) {
	const host = document.createElement("div");
	const root = host.attachShadow({ mode: "open" });
	const sheet = new CSSStyleSheet();
	sheet.replaceSync(model.get("style"));
	root.adoptedStyleSheets = [sheet];
	// The content comes from peasy with all text escaped, and scripts parsed this way never run.
	const content = new DOMParser().parseFromString(model.get("content"), "text/html");
	root.append(...document.importNode(content.body, true).childNodes);
	explainCells(root, JSON.parse(model.get("arithmetic")));
	el.append(host);
}

export default { render };
