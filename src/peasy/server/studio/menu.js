// Menu button: opens a short list of actions (export, copy).

import { nextIndex } from "/web/render/moves.js";
import { button, element, fill, uniqueId } from "./element.js";

/** `getItems` is called when the menu opens; each item has a label and run(). */
export function menuButton(label, getItems, title) {
	const id = uniqueId("menu");
	const list = element("div", { id, class: "menu", role: "menu", "aria-label": title ?? label, hidden: true });
	const opener = button(label, () => (list.hidden ? open() : close()), {
		"aria-haspopup": "menu",
		"aria-expanded": false,
		"aria-controls": id,
		title,
	});
	const container = element("div.menu-home", opener, list);
	const close = (restoreFocus = true) => {
		list.hidden = true;
		opener.setAttribute("aria-expanded", false);
		if (restoreFocus) opener.focus();
	};
	const menuItem = (text, onClick, attributes) =>
		button(text, onClick, { class: null, role: "menuitem", tabindex: -1, ...attributes });
	const open = () => {
		const items = getItems().map((item) =>
			menuItem(item.label, () => {
				close();
				item.run();
			}),
		);
		fill(list, items.length ? items : [menuItem("Nothing here yet", () => close(), { "aria-disabled": true })]);
		list.hidden = false;
		opener.setAttribute("aria-expanded", true);
		list.firstElementChild.focus();
	};
	list.addEventListener("keydown", (event) => onMenuKeyDown(event, list, close));
	container.addEventListener("focusout", (event) => {
		if (!list.hidden && !container.contains(event.relatedTarget)) close(false);
	});
	return { element: container, open };
}

function onMenuKeyDown(event, list, close) {
	const items = [...list.children];
	const current = items.indexOf(document.activeElement);
	const next = nextIndex(event, current, items.length);
	if (event.key === "Escape") close();
	else if (event.key === "Tab") close(false);
	else if (next !== undefined) items[next].focus();
	else return;
	if (event.key !== "Tab") event.preventDefault();
	event.stopPropagation();
}
