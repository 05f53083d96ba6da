// What a saved page does when scripts may run: the arithmetic of its cells, and a choice of theme.

import { addThemeButton } from "./theme.js";
import { explainCells } from "./arithmetic.js";

addThemeButton(document);
explainCells(document, JSON.parse(document.getElementById("arithmetic").textContent));
