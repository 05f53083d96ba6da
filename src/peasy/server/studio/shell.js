// Application shell: navigation rail, top bar, keyboard shortcuts, and the URL that holds all state.
//
// A page is a module page/<name>.js with `export class Page`: its constructor gets the element `place` and the shell,
// `start(state)` shows the state of the URL, and `close()`, if there is one, stops what runs. A page with a list of
// models or a text field in the top bar also has `export const page = {model?, text?, ofText?}`: `model` is the
// capability of the listed models, `text` the placeholder of the field, `ofText` the parameters of the URL that say
// nothing about another text or model. Pages use the public methods of Shell.

import { ApiError, noResponse, request, stream, whileWaiting } from "./api.js";
import { button, element, fill } from "./element.js";
import { KeyBindings } from "./keys.js";
import { PAGES } from "./pages.js";
import { TopBar } from "./topbar.js";
import { nextTheme } from "./theme.js";

/** Name of the page of a URL: its last part, so that the studio also works below the path of a proxy. */
const pageOf = ({ pathname }) => pathname.split("/").at(-1);

export class Shell {
	#closePage = null;
	#abortController = new AbortController();
	#stateListener = null;
	#openCount = 0;

	constructor() {
		this.place = document.getElementById("place");
		this.liveRegion = document.getElementById("live-region");
		this.keys = new KeyBindings();
		this.bar = new TopBar(this, document.getElementById("bar"));
		this.rail = document.getElementById("rail");
	}

	/** Name of the open page, from the URL. */
	get name() {
		return pageOf(location) || "home";
	}

	get state() {
		return Object.fromEntries(new URLSearchParams(location.search));
	}

	/** Aborted when the page is left: cancels all its requests. */
	get signal() {
		return this.#abortController.signal;
	}

	/**
	 * Change parameters of the URL; null or "" removes one. Replaces the history entry unless `push`.
	 * The page's state listener is not called: the page made the change.
	 */
	setState(changes, { push = false } = {}) {
		const url = this.#url(this.name, { ...this.state, ...changes });
		if (new URL(url, location.href).href === location.href.split("#")[0]) return;
		history[push ? "pushState" : "replaceState"](null, "", url);
		this.bar.show(this.state);
	}

	navigate(name, state = {}) {
		history.pushState(null, "", this.#url(name, state));
		return this.open();
	}

	/** Listen to state changes from outside (back button, model, text); without a listener the page is reopened. */
	onStateChange(listener) {
		this.#stateListener = listener;
	}

	request(command, body, options = {}) {
		return request(command, body, { signal: this.signal, ...options });
	}

	stream(path, body, onEvent, options = {}) {
		return stream(path, body, onEvent, { signal: this.signal, ...options });
	}

	/** Name of the model in the URL if it fits the page, or the first that does; throws if there is none. */
	async modelName(capability) {
		const fitting = (await this.bar.listModels(capability)).map(({ name }) => name);
		const { m } = this.state;
		const name = m && (fitting.includes(m) || !(await this.bar.findModel(m))) ? m : fitting[0];
		if (!name)
			throw new ApiError(
				"There is no model for this page yet.",
				"Train one on the page Train, or import one in the terminal: peasy import FOLDER.",
			);
		return name;
	}

	/** The forward pass of a model; the story, numbers of heads and ablations only if `fields` asks for them. */
	async forwardPass(fields, options = {}) {
		const body = { story: false, head_numbers: [], ablations: false, ...fields };
		return (await this.request("forward-pass", body, options)).result;
	}

	announce(text) {
		this.liveRegion.textContent = text;
	}

	/** Show an error and its hint, in `container` or on top of the page; aborted requests are ignored. */
	showError(error, container = null) {
		if (error?.name === "AbortError") return;
		const box = element(
			"div.refusal",
			{ role: "alert" },
			element("strong", "✗ ", error.message),
			error.hint && element("p", error.hint),
			error.needsReload && button("Reload", () => location.reload()),
		);
		if (container) fill(container, box);
		else {
			this.clearError();
			this.place.prepend(box);
		}
		if (!(error instanceof ApiError)) console.error(error);
	}

	/** Run something and show its error in `container`, or on top of the page. */
	async attempt(work, container = null) {
		try {
			return await work();
		} catch (error) {
			return this.showError(error, container);
		}
	}

	clearError() {
		this.place.querySelector(":scope > .refusal")?.remove();
	}

	/** Set the items of the export menu: a command whose result is saved as a file, and others as `{label, run}`. */
	setExports(getRequest, moreItems = () => []) {
		this.menuItems.exports = () => [...(getRequest ? this.#fileItems(getRequest) : []), ...moreItems()];
	}

	/** Set the items of the copy menu: `{label, text}`, where text is a string or a (possibly async) function. */
	setCopyItems(getItems) {
		this.menuItems.copies = () =>
			getItems().map(({ label, text }) => ({ label, run: () => this.copyText(text, label) }));
	}

	async copyText(text, label = "") {
		try {
			const content = typeof text === "function" ? await text() : text;
			if (!content) {
				this.bar.showNote("There is nothing to copy yet.");
				return;
			}
			await navigator.clipboard.writeText(content);
			this.bar.showNote(`Copied${label ? `: ${label}` : ""}.`);
		} catch (error) {
			this.showError(error.name === "NotAllowedError" ? new Error("The browser did not allow copying.") : error);
		}
	}

	#fileItems(getRequest) {
		const suffixes = { LaTeX: "tex", Markdown: "md" };
		return ["SVG", "PNG", "PDF", "HTML", "CSV", "LaTeX", "Markdown", "JSON"].map((label) => ({
			label,
			run: () => this.saveFile(getRequest(), suffixes[label] ?? label.toLowerCase()),
		}));
	}

	/** Save the result of a command as a file, changed by `edit(text)`, if given; its renderer is loaded when needed. */
	async saveFile({ command, body }, format, edit = null) {
		this.bar.showNote(`Rendering ${format} …`);
		await this.attempt(async () => {
			const { saveResult } = await import("./document.js");
			this.bar.showNote(`Saved ${await saveResult(command, body, format, { signal: this.signal }, edit)}.`);
		});
	}

	#url(name, state) {
		const query = new URLSearchParams(Object.entries(state).filter(([, value]) => (value ?? "") !== ""));
		return `${name}${query.size ? `?${query}` : ""}`;
	}

	async notifyState() {
		this.bar.show(this.state);
		if (!this.#stateListener) return this.open();
		return this.attempt(() => this.#stateListener(this.state));
	}

	async open() {
		const turn = (this.#openCount += 1);
		this.#leave();
		const known = PAGES.find(({ name }) => name === this.name);
		this.#markCurrent(known);
		if (!known) {
			const missing = new ApiError(`There is no page "${this.name}".`, "Choose a page from the list.");
			return whileWaiting(async () => this.showError(missing));
		}
		fill(this.place, element("h1.skeleton", known.title));
		// The page is busy until it is drawn and has its keys: its module may load longer than the first request takes.
		return whileWaiting(async () => {
			try {
				const module = await import(`./page/${known.name}.js`).catch((error) => {
					throw error instanceof SyntaxError ? error : noResponse();
				});
				if (turn !== this.#openCount) return;
				fill(this.place);
				this.bar.configure(module.page ?? {}, this.state);
				const opened = new module.Page(this.place, this);
				this.#closePage = () => opened.close?.();
				await opened.start(this.state);
				if (turn === this.#openCount) this.keys.enablePageKeys();
			} catch (error) {
				if (turn === this.#openCount) this.showError(error);
			}
		});
	}

	#leave() {
		this.#closePage?.();
		this.#closePage = null;
		this.#stateListener = null;
		this.#abortController.abort();
		this.#abortController = new AbortController();
		this.keys.clearPageKeys();
		this.menuItems = { exports: () => [], copies: () => [] };
		fill(this.place);
	}

	#markCurrent(known) {
		document.title = known ? `${known.title} · peasy studio` : "peasy studio";
		this.openPage = known?.name;
		for (const link of /** @type {NodeListOf<HTMLElement>} */ (this.rail.querySelectorAll("a[data-page]")))
			link.ariaCurrent = link.dataset.page === known?.name ? "page" : null;
		this.rail.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
		this.announce(known?.title ?? "");
	}

	start() {
		this.rail.append(
			element("a.brand", { href: "home", "aria-label": "peasy studio" }, element("b", "peasy")),
			element(
				"ul",
				PAGES.map((page) => this.#railLink(page)),
			),
		);
		// Links between pages change the view without reloading the document.
		document.addEventListener("click", (event) => this.#onLinkClick(event));
		window.addEventListener("popstate", () => (this.openPage === this.name ? this.notifyState() : this.open()));
		this.keys.add(this.#globalKeys(), "global");
		this.keys.add(
			PAGES.map(({ name, title, letter }) => ({
				key: letter,
				label: title,
				run: () => this.navigate(name, this.sharedState()),
			})),
			"navigation",
		);
		this.bar.listModels().catch(() => {}); // requested while the page's module loads, which shows an error
		this.open();
	}

	#railLink({ name, title, letter }) {
		return element(
			"li",
			element(
				"a",
				{ href: name, "data-page": name, "aria-keyshortcuts": `g ${letter}` },
				title,
				element("kbd", { "aria-hidden": true }, `g ${letter}`),
			),
		);
	}

	/** State shared between pages: the text and the model; a page that cannot use the model takes its own first one. */
	sharedState() {
		const { t, m } = this.state;
		return { t, m };
	}

	#onLinkClick(event) {
		const link = event.target.closest?.("a[href]");
		const isSpecial = event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey;
		if (!link || isSpecial || link.origin !== location.origin || link.hasAttribute("download") || link.hash) return;
		const name = pageOf(link);
		if (!PAGES.some((page) => page.name === name)) return;
		event.preventDefault();
		this.navigate(name, link.dataset.page ? this.sharedState() : Object.fromEntries(new URLSearchParams(link.search)));
		this.place.focus({ preventScroll: false });
	}

	#globalKeys() {
		return [
			{ key: "/", label: "Go to the text field", run: () => this.bar.focusText() },
			{ key: "e", label: "Export", run: () => this.bar.exportMenu.open() },
			{ key: "c", label: "Copy", run: () => this.bar.copyMenu.open() },
			{
				key: "t",
				label: "Theme: light, dark, high contrast, system",
				run: () => this.bar.showNote(`Theme: ${nextTheme()}`),
			},
			{ key: "?", label: "Show this list", run: () => this.keys.show() },
		];
	}
}

new Shell().start();
