// Keys: what the shell knows, what a page adds, and the list of all of them.

import { element } from "./element.js";

const WORDS = { " ": "space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };
const PATIENCE = 1500; // milliseconds between g and the letter

/** @typedef {{key: string, says: string, run: (event: KeyboardEvent) => void}} Key */

export class Keys {
  /** @type {Map<string, Key>} */ #always = new Map();
  /** @type {Map<string, Key>} */ #here = new Map();
  /** @type {Map<string, Key>} */ #after = new Map();
  #waiting = 0;

  constructor() {
    document.addEventListener("keydown", (event) => this.#pressed(event));
  }

  /** Keys that hold on every page. */
  always(keys) {
    keys.forEach((key) => this.#always.set(key.key, key));
  }

  /** Keys that follow `g`. */
  afterG(keys) {
    keys.forEach((key) => this.#after.set(key.key, key));
  }

  /** Keys of the page that is open; they go when it closes. */
  here(keys) {
    keys.forEach((key) => this.#here.set(key.key, key));
  }

  forget() {
    this.#here.clear();
  }

  #pressed(event) {
    const target = event.composedPath()[0];
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && isTyping(target)) return target.blur();
    if (isTyping(target) || document.querySelector("dialog[open]")) return;
    const found = this.#find(event, target);
    if (!found) return;
    event.preventDefault();
    found.run(event);
  }

  #find(event, target) {
    const jump = Date.now() < this.#waiting ? this.#after.get(event.key) : null;
    this.#waiting = !jump && event.key === "g" ? Date.now() + PATIENCE : 0;
    if (jump) return jump;
    // Arrows and space belong to the control that has the focus.
    if ((event.key === " " || event.key.startsWith("Arrow")) && isControl(target)) return null;
    return this.#here.get(event.key) ?? this.#always.get(event.key);
  }

  /** A dialog that lists them. */
  show() {
    const line = (shown, says) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, shown)), element("td", { class: "word" }, says));
    const part = (title, keys, before = "") => keys.size > 0 && element("table", { class: "keys" },
      element("caption", {}, element("b", {}, title)),
      element("tbody", {}, [...keys.values()].map((key) => line(before + (WORDS[key.key] ?? key.key), key.says))));
    const close = element("button", { type: "button", class: "plain", onclick: () => dialog.close() }, "Close");
    const dialog = element("dialog", { "aria-label": "Keys", class: "keys-dialog" },
      element("div", { class: "row between" }, element("h2", {}, "Keys"), close),
      part("On this page", this.#here), part("Everywhere", this.#always), part("Pages", this.#after, "g "));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

function isTyping(target) {
  const plain = target instanceof HTMLInputElement && !["checkbox", "radio", "range", "button", "submit"].includes(target.type);
  return plain || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

function isControl(target) {
  return target.closest?.("button, a, input, summary, canvas, td[tabindex], [role=slider], [role=tab], [data-arrows]") !== null;
}
