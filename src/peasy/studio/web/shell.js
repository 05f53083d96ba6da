// The frame around every page: rail, top bar, keys, and the URL that holds all state.
//
// A page is a module page/<name>.js with `export const page = {name, title, letter, model?, text?}` and
// `export async function open(place, state, shell)`, which returns a function that closes it. `model` names the kinds
// of model the page takes (a list such as ["gpt"], or true for any), `text` is what the empty text field says.
// What a page may use of the shell stands in class Shell below.

import { ask, fetchFile, stream } from "./api.js";
import { element } from "./element.js";
import { Keys } from "./keys.js";
import { PAGES } from "./pages.js";
import { TopBar } from "./bar.js";
import { nextTheme } from "./theme.js";

class Shell {
  #close = null;
  #abort = new AbortController();
  #heard = null;
  #opening = 0;

  constructor() {
    this.place = document.getElementById("place");
    this.told = document.getElementById("told");
    this.element = element;
    this.keys = new Keys();
    this.bar = new TopBar(this, document.getElementById("bar"));
    this.rail = document.getElementById("rail");
    this.offers = { exports: () => [], copies: () => [] };
  }

  /** The page that is open, and the parameters of its URL. */
  get name() {
    return location.pathname.split("/")[1] || "work";
  }

  get state() {
    return Object.fromEntries(new URLSearchParams(location.search));
  }

  /** Aborted when the page is left: every question of a page ends with it. */
  get signal() {
    return this.#abort.signal;
  }

  /**
   * Change parameters of the URL; null or "" removes one. Replaces the entry of the history unless `push`.
   * The page itself is not told: it knows what it changed.
   */
  set(changes, { push = false } = {}) {
    const url = this.#address(this.name, { ...this.state, ...changes });
    if (url === location.pathname + location.search) return;
    history[push ? "pushState" : "replaceState"](null, "", url);
    this.bar.show(this.state);
  }

  /** Go to another page, with these parameters; the way back stays. */
  go(name, state = {}) {
    history.pushState(null, "", this.#address(name, state));
    return this.open();
  }

  /** Hear when the state changed from outside (back button, model, text); without this the page is opened anew. */
  onState(heard) {
    this.#heard = heard;
  }

  ask(verb, body, how = {}) {
    return ask(verb, body, { signal: this.signal, ...how });
  }

  stream(path, body, onEvent, how = {}) {
    return stream(path, body, onEvent, { signal: this.signal, ...how });
  }

  /** The model that the URL names, or the first that fits the page; an error in words where there is none. */
  async model(kinds = true) {
    const named = this.state.m ?? (await this.bar.known(kinds))[0]?.name;
    if (!named) throw Object.assign(new Error("There is no model for this page yet."), { hint: "Train one (g r), or bring one in: peasy import." });
    return named;
  }

  /** Say something to who cannot see it. */
  say(text) {
    this.told.textContent = text;
  }

  /** Show what went wrong and what to do next; what was aborted is no error. */
  fail(error, where = null) {
    if (error?.name === "AbortError") return;
    const box = element("div", { class: "refusal", role: "alert" }, element("strong", {}, "✗ ", error.message), error.hint && element("p", {}, error.hint));
    if (where) where.replaceChildren(box);
    else {
      this.place.querySelector(":scope > .refusal")?.remove();
      this.place.prepend(box);
    }
    if (!error.hint && !error.status) console.error(error);
  }

  /** Take away what `fail` showed on top of the page. */
  well() {
    this.place.querySelector(":scope > .refusal")?.remove();
  }

  /** What the export button gives: a verb and its arguments as files, and anything else as `{label, run}`. */
  exports(given, more = () => []) {
    this.offers.exports = () => [...(given ? this.#files(given) : []), ...more()];
  }

  /** What the copy key gives: a list of `{label, text}`, text a string or a function that (perhaps later) gives one. */
  copies(listed) {
    this.offers.copies = () => listed().map(({ label, text }) => ({ label, run: () => this.copy(text, label) }));
  }

  async copy(text, called = "") {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
      this.bar.flash(`Copied${called ? `: ${called}` : ""}.`);
    } catch (error) {
      this.fail(error.name === "NotAllowedError" ? new Error("The browser did not allow copying.") : error);
    }
  }

  #files(given) {
    const formats = [["SVG", "svg"], ["PNG", "png"], ["HTML", "html"], ["CSV", "csv"], ["LaTeX", "tex"], ["Markdown", "md"], ["JSON", "json"]];
    return formats.map(([label, suffix]) => ({ label, run: () => this.#save(given, suffix) }));
  }

  async #save(given, suffix) {
    const { verb, body } = given();
    this.bar.flash(`Drawing ${suffix} …`);
    try {
      const { blob, name } = await fetchFile(`/api/${verb}`, { ...body, format: suffix }, { signal: this.signal });
      const { saveBlob } = await import("./draw.js");
      saveBlob(blob, name);
      this.bar.flash(`Saved ${name}.`);
    } catch (error) {
      this.fail(error);
    }
  }

  #address(name, state) {
    const query = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== ""));
    return `/${name}${query.size ? `?${query}` : ""}`;
  }

  /** Tell the open page that the state is another one, or open it anew if it does not listen. */
  changed() {
    this.bar.show(this.state);
    if (this.#heard) this.#heard(this.state);
    else this.open();
  }

  /** Open what the URL says. */
  async open() {
    const turn = (this.#opening += 1);
    this.#leave();
    const known = PAGES.find(({ name }) => name === this.name);
    this.#mark(known);
    if (!known) return this.fail(Object.assign(new Error(`There is no page "${this.name}".`), { hint: "Choose one from the list of pages." }));
    try {
      const module = await import(`./page/${known.name}.js`);
      if (turn !== this.#opening) return undefined;
      this.bar.furnish(module.page, this.state);
      const close = await module.open(this.place, this.state, this);
      if (turn === this.#opening) this.#close = close;
      else close?.();
    } catch (error) {
      if (turn === this.#opening) this.fail(error);
    }
    return undefined;
  }

  #leave() {
    this.#close?.();
    this.#close = null;
    this.#heard = null;
    this.#abort.abort();
    this.#abort = new AbortController();
    this.keys.forget();
    this.offers = { exports: () => [], copies: () => [] };
    this.place.replaceChildren();
  }

  #mark(known) {
    document.title = known ? `${known.title} · peasy studio` : "peasy studio";
    this.opened = known?.name;
    for (const link of this.rail.querySelectorAll("a[data-page]")) {
      if (link.dataset.page === known?.name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.say(known?.title ?? "");
  }

  start() {
    this.rail.append(element("a", { class: "brand", href: "/work", "aria-label": "peasy studio" }, element("b", {}, "peasy")), element("ul", {}, PAGES.map((page) => this.#link(page))));
    // A link of the rail, or of a page, changes the view without loading the document again.
    document.addEventListener("click", (event) => this.#followed(event));
    window.addEventListener("popstate", () => (this.opened === this.name ? this.changed() : this.open()));
    this.keys.always(this.#keys());
    this.keys.afterG(PAGES.map(({ name, title, letter }) => ({ key: letter, says: title, run: () => this.go(name, this.carried()) })));
    this.open();
  }

  #link({ name, title, letter }) {
    return element("li", {}, element("a", { href: `/${name}`, "data-page": name, "aria-keyshortcuts": `g ${letter}` }, title, element("kbd", { "aria-hidden": "true" }, `g ${letter}`)));
  }

  /** What goes along from page to page: the text. A model fits one page and not the next. */
  carried() {
    return this.state.t ? { t: this.state.t } : {};
  }

  #followed(event) {
    const link = event.target.closest?.("a[href]");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.origin !== location.origin || link.hasAttribute("download") || link.hash) return;
    const name = link.pathname.split("/")[1];
    if (!PAGES.some((page) => page.name === name)) return;
    event.preventDefault();
    this.go(name, link.dataset.page ? this.carried() : Object.fromEntries(new URLSearchParams(link.search)));
    this.place.focus({ preventScroll: false });
  }

  #keys() {
    return [
      { key: "/", says: "Go to the text", run: () => this.bar.focusText() },
      { key: "e", says: "Export", run: () => this.bar.exporter.open() },
      { key: "c", says: "Copy", run: () => this.bar.copier.open() },
      { key: "t", says: "Theme: light, dark, high contrast, as the system", run: () => this.bar.flash(`Theme: ${nextTheme()}`) },
      { key: "?", says: "This list", run: () => this.keys.show() },
    ];
  }
}

new Shell().start();
