// What a saved page does when scripts may run: the arithmetic of its cells, and a choice of theme.

import { addThemeButton } from "./theme.js";
import { explainCells } from "./arithmetic.js";

// What can be scrolled must be reachable by keyboard; a table with explained cells already is. Asking for the size of
// what is folded away would lay it out: it is asked for when it is unfolded.
function reach(root) {
  for (const scroller of root.querySelectorAll("figure, div.formula")) {
    const folded = scroller.closest("details:not([open])");
    if (folded || scroller.querySelector("[data-cell]")) continue;
    if (scroller.scrollWidth > scroller.clientWidth) scroller.tabIndex = 0;
  }
}
reach(document);
document.addEventListener("toggle", (event) => reach(event.target), { capture: true });
addThemeButton(document);
explainCells(document, JSON.parse(document.getElementById("arithmetic").textContent));
