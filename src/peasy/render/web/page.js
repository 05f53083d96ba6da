// Script of a saved page: arithmetic of its cells and a theme button.

import { addThemeButton } from "./theme.js";
import { explainCells } from "./arithmetic.js";

// Make scrollable figures reachable by keyboard; a table with explained cells already is. Measuring inside a closed
// <details> would force a layout, so that is done when it is opened.
function makeScrollersFocusable(root) {
	for (const scroller of root.querySelectorAll("figure, div.formula")) {
		const closedDetails = scroller.closest("details:not([open])");
		if (closedDetails || scroller.querySelector("[data-cell]")) continue;
		if (scroller.scrollWidth > scroller.clientWidth) scroller.tabIndex = 0;
	}
}
makeScrollersFocusable(document);
document.addEventListener("toggle", (event) => makeScrollersFocusable(event.target), { capture: true });
// In a notebook the page is in a frame, which becomes as high as the page.
if (window.frameElement?.hasAttribute("srcdoc"))
	new ResizeObserver(() => {
		/** @type {HTMLElement} */ (window.frameElement).style.height = `${document.documentElement.scrollHeight}px`;
	}).observe(document.body);
addThemeButton(document);
explainCells(document, JSON.parse(document.getElementById("arithmetic").textContent));
