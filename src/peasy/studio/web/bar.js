// The top bar: which model, which text, theme, copy, export, keys.

import { ask } from "./api.js";
import { button, element, select } from "./element.js";
import { menuButton } from "./menu.js";
import { THEMES, chosenTheme, setTheme } from "./theme.js";

const PAUSE = 350; // milliseconds after the last letter before the page is told

export class TopBar {
  #page = null;
  #timer = 0;

  constructor(shell, home) {
    this.shell = shell;
    this.models = null;
    this.text = element("input", { type: "text", id: "text", "aria-label": "Text", autocomplete: "off", spellcheck: "false", maxlength: 20000 });
    this.text.addEventListener("input", () => this.#soon());
    this.text.addEventListener("keydown", (event) => event.key === "Enter" && this.#told());
    this.model = element("span", { class: "model" });
    this.exporter = menuButton("Export", () => shell.offers.exports(), "Export what is shown (e)");
    this.copier = menuButton("Copy", () => [{ label: "Link to this view", run: () => shell.copy(location.href, "link") }, ...shell.offers.copies()], "Copy (c)");
    this.note = element("span", { class: "flash", role: "status" });
    const theme = select(THEMES.map((name) => [name, name === "auto" ? "as the system" : name === "contrast" ? "high contrast" : name]), chosenTheme(), setTheme, { "aria-label": "Theme", class: "theme" });
    new MutationObserver(() => (theme.value = chosenTheme())).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const help = button("?", () => shell.keys.show(), { "aria-label": "List of keys", title: "Keys (?)" });
    home.append(this.model, this.text, element("span", { class: "tools" }, this.note, theme, this.copier.home, this.exporter.home, help));
  }

  /** What this page needs of the bar. */
  async furnish(page, state) {
    this.#page = page;
    this.text.hidden = !page.text;
    this.text.placeholder = page.text || "";
    this.model.hidden = !page.model;
    this.show(state);
    if (page.model) await this.#listModels(page);
  }

  show(state) {
    if (document.activeElement !== this.text) this.text.value = state.t ?? "";
    if (this.chooser && state.m) this.#choose(state.m);
  }

  /** Models a page takes (true for all, a list of kinds, or a test); each `{name, where, is, …}`. Asked once, again with `anew`. */
  async known(kinds = true, anew = false) {
    if (!this.models || anew) this.models = ask("models", {}).then((answer) => answer.result.models.filter((model) => !model.fault));
    try {
      const all = await this.models;
      if (kinds === true) return all;
      return all.filter(typeof kinds === "function" ? kinds : (model) => kinds.includes(model.is));
    } catch (error) {
      this.models = null;
      throw error;
    }
  }

  async #listModels(page) {
    try {
      const found = await this.known(page.model);
      if (page !== this.#page) return;
      this.chooser = select(found.map((model) => [model.name, model.name]), "", (name) => this.#set({ m: name }), { "aria-label": "Model" });
      this.model.replaceChildren(this.chooser);
      if (!found.length) this.model.replaceChildren(element("span", { class: "quiet" }, "no model for this page yet"));
      this.#choose(this.shell.state.m ?? found[0]?.name);
    } catch (error) {
      this.shell.fail(error);
    }
  }

  #choose(name) {
    if (name && ![...this.chooser.options].some((option) => option.value === name)) this.chooser.append(element("option", { value: name }, name));
    this.chooser.value = name ?? "";
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#told(), PAUSE);
  }

  #told() {
    clearTimeout(this.#timer);
    if ((this.shell.state.t ?? "") !== this.text.value) this.#set({ t: this.text.value }, false);
  }

  #set(changes, push = true) {
    this.shell.set(changes, { push });
    this.shell.changed();
  }

  focusText() {
    const field = this.text.hidden ? this.shell.place.querySelector("textarea, input[type=text]") : this.text;
    field?.focus();
    field?.select?.();
  }

  /** A few words that go away by themselves. */
  flash(text) {
    this.note.textContent = text;
    clearTimeout(this.fading);
    this.fading = setTimeout(() => (this.note.textContent = ""), 4000);
  }
}
