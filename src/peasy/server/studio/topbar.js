// Top bar: model list, text field, theme, copy and export menus, keyboard help.

import { request } from "./api.js";
import { button, element, fill, select } from "./element.js";
import { menuButton } from "./menu.js";
import { THEMES, currentTheme, setTheme } from "./theme.js";

const TYPING_DELAY = 350; // milliseconds after the last keystroke before the page is updated
const THEME_LABELS = { auto: "system", contrast: "high contrast" };

// The models to begin with, first of all; the others keep the order of the server.
const FIRST_MODELS = ["stories", "locales-fr", "sentences"];
const rank = ({ name }) => (FIRST_MODELS.indexOf(name) + FIRST_MODELS.length + 1) % (FIRST_MODELS.length + 1);

export const byRank = (one, other) => rank(one) - rank(other);

export class TopBar {
	/** @type {{m?: string, t?: string}} */
	defaults = {};
	#page = null;
	#typingTimer = 0;
	#models = null;

	constructor(shell, container) {
		this.shell = shell;
		this.text = element("input", {
			type: "text",
			id: "text",
			"aria-label": "Text",
			autocomplete: "off",
			spellcheck: "false",
			maxlength: 20000,
			oninput: () => this.#applyTextSoon(),
			onkeydown: ({ key }) => key === "Enter" && this.#applyText(),
		});
		this.modelContainer = element("span.model");
		this.exportMenu = menuButton("Export", () => shell.menuItems.exports(), "Export what is shown (e)");
		this.copyMenu = menuButton(
			"Copy",
			() => [
				{ label: "Link to this view", run: () => shell.copyText(location.href, "link") },
				...shell.menuItems.copies(),
			],
			"Copy (c)",
		);
		this.note = element("span.flash", { role: "status" });
		const themeSelect = select(
			THEMES.map((name) => [name, `Theme: ${THEME_LABELS[name] ?? name}`]),
			currentTheme(),
			setTheme,
			{ "aria-label": "Theme", class: "theme" },
		);
		new MutationObserver(() => (themeSelect.value = currentTheme())).observe(document.documentElement, {
			attributes: true,
			attributeFilter: ["data-theme"],
		});
		const help = button("?", () => shell.keys.show(), { "aria-label": "Keyboard shortcuts", title: "Keys (?)" });
		container.append(
			this.modelContainer,
			this.text,
			element("span.tools", this.note, themeSelect, this.copyMenu.element, this.exportMenu.element, help),
		);
	}

	async configure(page, state) {
		this.#page = page;
		this.defaults = {};
		this.text.hidden = !page.text;
		this.text.placeholder = page.text || "";
		this.modelContainer.hidden = !page.model;
		this.show(state);
		if (page.model) await this.#fillModelSelect(page);
	}

	show(state) {
		const { t = "", m } = { ...this.defaults, ...state };
		if (document.activeElement !== this.text) this.text.value = t;
		if (this.modelSelect && m) this.#showModel(m);
	}

	/** What the page shows as long as the URL does not name a text or a model. */
	setDefaults(defaults) {
		this.defaults = defaults;
		this.show(this.shell.state);
	}

	/**
	 * Usable models, each `{name, source, model_type, …}`: those with a capability, or all.
	 * The list is requested once, again with `reload`.
	 */
	async listModels(capability = null, reload = false) {
		if (!this.#models || reload) {
			this.#models = request("models").then(({ result }) => result.models.filter(({ error }) => !error));
			this.#models.catch(() => (this.#models = null));
		}
		const fitting = (model) => !capability || model.capabilities.includes(capability);
		return (await this.#models).filter(fitting).toSorted(byRank);
	}

	/** The entry of a model; undefined for one that is not in the list. */
	async findModel(name) {
		return (await this.listModels()).find((model) => model.name === name);
	}

	async #fillModelSelect(page) {
		await this.shell.attempt(async () => {
			const models = await this.listModels(page.model);
			if (page !== this.#page) return;
			this.modelSelect = select(
				models.map(({ name }) => name),
				"",
				(name) => this.#setState({ m: name }),
				{ "aria-label": "Model" },
			);
			fill(this.modelContainer, element("span.quiet", { "aria-hidden": true }, "Model "), this.modelSelect);
			if (!models.length) fill(this.modelContainer, element("span.quiet", "no model for this page yet"));
			this.#showModel(await this.shell.modelName(page.model).catch(() => ""));
		});
	}

	#showModel(name) {
		if (name && ![...this.modelSelect.options].some((option) => option.value === name))
			this.modelSelect.append(element("option", { value: name }, name));
		this.modelSelect.value = name ?? "";
	}

	#applyTextSoon() {
		clearTimeout(this.#typingTimer);
		this.#typingTimer = setTimeout(() => this.#applyText(), TYPING_DELAY);
	}

	#applyText() {
		clearTimeout(this.#typingTimer);
		if ((this.shell.state.t ?? "") !== this.text.value) this.#setState({ t: this.text.value }, false);
	}

	/** Another text or model: parameters of the page that belong to the one before go with it. */
	#setState(changes, push = true) {
		const outdated = (this.#page.ofText ?? []).map((name) => [name, null]);
		this.shell.setState({ ...Object.fromEntries(outdated), ...changes }, { push });
		this.shell.notifyState();
	}

	focusText() {
		const field = this.text.hidden ? this.shell.place.querySelector("textarea, input[type=text]") : this.text;
		field?.focus();
		field?.select?.();
	}

	/** Show a short message that disappears by itself. */
	showNote(text) {
		this.note.textContent = text;
		clearTimeout(this.noteTimer);
		this.noteTimer = setTimeout(() => (this.note.textContent = ""), 4000);
	}
}
