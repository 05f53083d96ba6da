// Keyboard shortcuts: global ones, those of the open page, and the dialog that lists them.

import { element, openDialog, table } from "./element.js";

const KEY_NAMES = { " ": "space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
const ARROW_CONTROLS = "input, canvas, td[tabindex], [role=slider], [role=tab], [data-arrows]";
const SEQUENCE_TIMEOUT = 1500; // milliseconds between g and the letter

/**
 * Bindings {key, label, run, when?} by key, in groups: of the open page, of every page, and navigation, after `g`.
 * While `when()` is false, a key does what it does in the browser.
 */
export class KeyBindings {
	#groups = { page: new Map(), global: new Map(), navigation: new Map() };
	#sequenceEnd = 0;
	#pageReady = false;

	constructor() {
		document.addEventListener("keydown", (event) => this.#onKeyDown(event));
	}

	add(bindings, group = "page") {
		bindings.forEach((binding) => this.#groups[group].set(binding.key, binding));
	}

	clearPageKeys() {
		this.#groups.page.clear();
		this.#pageReady = false;
	}

	/** The page has its data: its keys act from now on. */
	enablePageKeys() {
		this.#pageReady = true;
	}

	#onKeyDown(event) {
		const target = event.composedPath()[0];
		if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
		if (event.key === "Escape" && isTextInput(target)) return target.blur();
		if (isTextInput(target) || document.querySelector("dialog[open]")) return;
		const binding = this.#findBinding(event, target);
		if (!binding || binding.when?.() === false) return;
		event.preventDefault();
		binding.run(event);
	}

	#findBinding({ key }, target) {
		const navigation = Date.now() < this.#sequenceEnd ? this.#groups.navigation.get(key) : null;
		this.#sequenceEnd = !navigation && key === "g" ? Date.now() + SEQUENCE_TIMEOUT : 0;
		if (navigation) return navigation;
		// Arrow keys and space belong to the focused control that uses them.
		const users = key === " " ? `button, a, summary, ${ARROW_CONTROLS}` : ARROW_CONTROLS;
		if ((key === " " || key.startsWith("Arrow")) && target.closest?.(users)) return null;
		return (this.#pageReady && this.#groups.page.get(key)) || this.#groups.global.get(key);
	}

	show() {
		const list = (title, bindings, prefix = "") => {
			const name = (key) => element("kbd", prefix + (KEY_NAMES[key] ?? key));
			const rows = [...bindings.values()].map(({ key, label }) => [name(key), label]);
			return rows.length > 0 && table(title, ["key", "action"], rows);
		};
		const { page, global, navigation } = this.#groups;
		openDialog("Keys", list("On this page", page), list("Everywhere", global), list("Pages", navigation, "g "));
	}
}

function isTextInput(target) {
	return target.matches?.(
		"input:not([type=checkbox], [type=radio], [type=range]), textarea, select, [contenteditable]",
	);
}
