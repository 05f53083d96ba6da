// What a saved page does when scripts may run: the arithmetic of its cells, and a choice of theme.

import { addThemeButton } from "./theme.js";
import { explainCells } from "./arithmetic.js";

// What can be scrolled must be reachable by keyboard; a table with explained cells already is.
for (const scroller of document.querySelectorAll("figure, div.formula")) {
  if (scroller.scrollWidth > scroller.clientWidth && !scroller.querySelector("[data-cell]")) scroller.tabIndex = 0;
}
addThemeButton(document);
explainCells(document, JSON.parse(document.getElementById("arithmetic").textContent));
