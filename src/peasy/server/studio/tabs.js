// Tabs: one panel at a time; arrow keys move between them.

import { nextIndex } from "/web/render/moves.js";
import { button, element, fill, uniqueId } from "./element.js";

/** Each of the `entries` has a name, a title and show(), which returns its content, or a promise of it. */
export function tabs(entries, onChoose) {
	const panel = element("div", { role: "tabpanel", id: uniqueId("panel"), tabindex: -1 });
	const buttons = entries.map(({ name, title }) =>
		button(title, () => choose(name), {
			class: null,
			role: "tab",
			id: uniqueId("tab"),
			"aria-controls": panel.id,
		}),
	);
	const list = element("div.tabs", { role: "tablist" }, buttons);
	const choose = async (name, notify = true) => {
		const found = entries.findIndex((entry) => entry.name === name);
		const chosen = Math.max(found, 0);
		buttons.forEach((tab, index) => {
			tab.setAttribute("aria-selected", index === chosen);
			tab.tabIndex = index === chosen ? 0 : -1;
		});
		panel.setAttribute("aria-labelledby", buttons[chosen].id);
		if (notify) onChoose(entries[chosen].name);
		fill(panel, await entries[chosen].show());
	};
	list.addEventListener("keydown", (event) => {
		const current = buttons.indexOf(document.activeElement);
		const target = nextIndex(event, current, buttons.length);
		if (target === undefined) return;
		event.preventDefault();
		event.stopPropagation();
		buttons[target].focus();
		choose(entries[target].name);
	});
	return { element: element("div", list, panel), choose };
}
