// Keyboard shortcuts: global ones, those of the open page, and the dialog that lists them.

import { element } from "./element.js";

const KEY_NAMES = { " ": "space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
const SEQUENCE_TIMEOUT = 1500; // milliseconds between g and the letter

/** @typedef {{key: string, label: string, run: (event: KeyboardEvent) => void}} KeyBinding */

export class KeyBindings {
  /** @type {Map<string, KeyBinding>} */ #globalKeys = new Map();
  /** @type {Map<string, KeyBinding>} */ #pageKeys = new Map();
  /** @type {Map<string, KeyBinding>} */ #navigationKeys = new Map();
  #sequenceEnd = 0;

  constructor() {
    document.addEventListener("keydown", (event) => this.#onKeyDown(event));
  }

  /** Keys that work on every page. */
  addGlobalKeys(bindings) {
    bindings.forEach((binding) => this.#globalKeys.set(binding.key, binding));
  }

  /** Keys that follow `g`. */
  addNavigationKeys(bindings) {
    bindings.forEach((binding) => this.#navigationKeys.set(binding.key, binding));
  }

  /** Keys of the open page; removed when it closes. */
  addPageKeys(bindings) {
    bindings.forEach((binding) => this.#pageKeys.set(binding.key, binding));
  }

  clearPageKeys() {
    this.#pageKeys.clear();
  }

  #onKeyDown(event) {
    const target = event.composedPath()[0];
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && isTextInput(target)) return target.blur();
    if (isTextInput(target) || document.querySelector("dialog[open]")) return;
    const binding = this.#findBinding(event, target);
    if (!binding) return;
    event.preventDefault();
    binding.run(event);
  }

  #findBinding(event, target) {
    const navigation = Date.now() < this.#sequenceEnd ? this.#navigationKeys.get(event.key) : null;
    this.#sequenceEnd = !navigation && event.key === "g" ? Date.now() + SEQUENCE_TIMEOUT : 0;
    if (navigation) return navigation;
    // Arrow keys and space belong to the focused control.
    if ((event.key === " " || event.key.startsWith("Arrow")) && isControl(target)) return null;
    return this.#pageKeys.get(event.key) ?? this.#globalKeys.get(event.key);
  }

  /** Open the dialog that lists all keys. */
  show() {
    const row = (name, label) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, name)), element("td", { class: "word" }, label));
    const group = (title, bindings, prefix = "") => bindings.size > 0 && element("table", { class: "keys" },
      element("caption", {}, element("b", {}, title)),
      element("tbody", {}, [...bindings.values()].map(({ key, label }) => row(prefix + (KEY_NAMES[key] ?? key), label))));
    const close = element("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Close");
    const dialog = element("dialog", { "aria-label": "Keys", class: "keys-dialog" },
      element("div", { class: "row between" }, element("h2", {}, "Keys"), close),
      group("On this page", this.#pageKeys), group("Everywhere", this.#globalKeys), group("Pages", this.#navigationKeys, "g "));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

function isTextInput(target) {
  const hasText = target instanceof HTMLInputElement && !["checkbox", "radio", "range", "button", "submit"].includes(target.type);
  return hasText || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

function isControl(target) {
  return target.closest?.("button, a, input, summary, canvas, td[tabindex], [role=slider], [role=tab], [data-arrows]") !== null;
}
