// Popover with the arithmetic of a table cell, opened by hover or focus. All text becomes text nodes.

import { ARROW_MOVES } from "./moves.js";

// `root` is a document, or an element or shadow root of one.
export function explainCells(root, arithmetic) {
	const popover = makePopover(root.ownerDocument ?? root, root.querySelector("main") ?? root);
	for (const table of root.querySelectorAll("figure.matrix table")) {
		const cells = table.querySelectorAll("td[data-cell]");
		if (cells.length === 0) continue;
		// Roving tabindex: one tab stop per table, arrow keys inside it.
		cells.forEach((cell, index) => (cell.tabIndex = index === 0 ? 0 : -1));
		const open = (event) => {
			const cell = event.target.closest("td[data-cell]");
			if (cell) popover.show(cell, arithmetic[cell.dataset.cell]);
		};
		table.addEventListener("pointerover", open);
		table.addEventListener("focusin", open);
		table.addEventListener("pointerleave", () => popover.showFocused(root.activeElement, arithmetic));
		table.addEventListener("focusout", () => popover.hide());
		table.addEventListener("click", (event) => event.target.closest("td[data-cell]")?.focus());
		table.addEventListener("keydown", (event) => moveInTable(event, table, popover));
	}
	root.addEventListener("scroll", popover.reposition, { passive: true, capture: true });
}

function makePopover(ownerDocument, container) {
	const box = Object.assign(ownerDocument.createElement("div"), { id: "popover", hidden: true });
	box.setAttribute("role", "tooltip");
	container.append(box);
	let shownCell = null;
	const hide = () => {
		box.hidden = true;
		shownCell?.removeAttribute("aria-describedby");
	};
	const reposition = () => {
		if (!box.hidden) positionPopover(box, shownCell.getBoundingClientRect());
	};
	const show = (cell, lines) => {
		hide();
		if (!lines) return;
		const [title, ...steps] = lines;
		const textElement = (tag, text) => Object.assign(ownerDocument.createElement(tag), { textContent: text });
		box.replaceChildren(textElement("strong", title), ...steps.map((step) => textElement("pre", step)));
		box.hidden = false;
		shownCell = cell;
		cell.setAttribute("aria-describedby", box.id);
		reposition();
	};
	const showFocused = (focused, arithmetic) => {
		if (focused?.dataset?.cell) show(focused, arithmetic[focused.dataset.cell]);
		else hide();
	};
	return { show, hide, showFocused, reposition };
}

function positionPopover(box, cellRect) {
	const { innerWidth, innerHeight } = window;
	const left = Math.min(cellRect.left, innerWidth - box.offsetWidth - 12);
	const fitsBelow = cellRect.bottom + box.offsetHeight + 8 < innerHeight;
	const top = fitsBelow ? cellRect.bottom + 8 : cellRect.top - box.offsetHeight - 8;
	box.style.left = `${Math.max(left, 12)}px`;
	box.style.top = `${Math.max(top, 8)}px`;
}

function moveInTable(event, table, popover) {
	if (event.key === "Escape") return popover.hide();
	const move = ARROW_MOVES[event.key];
	const cell = event.target.closest("td[data-cell]");
	if (!move || !cell) return;
	event.preventDefault();
	const rows = [...table.tBodies[0].rows];
	const row = rows[rows.indexOf(cell.parentElement) + move[0]];
	const next = row?.cells[cell.cellIndex + move[1]];
	if (!next?.dataset.cell) return;
	cell.tabIndex = -1;
	next.tabIndex = 0;
	next.focus();
}
