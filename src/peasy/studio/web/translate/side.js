// One translator: its answer, the ribbons of one head, what changes in order and number, its heads, its tree.

import { drawing } from "../draw.js";
import { element, field, select } from "../element.js";
import { drawTree } from "./tree.js";

export class Side {
  constructor(letter, models, shell, again) {
    Object.assign(this, { letter, shell, again });
    this.chooser = select(models.map(({ name }) => name), "", (name) => {
      this.set({ [letter]: name, [`l${letter}`]: null, [`h${letter}`]: null }, true);
      [this.model, this.layer, this.head] = [name, null, null];
      again();
    });
    this.kind = element("span", { class: "quiet" });
    this.said = element("p", { class: "said", "aria-live": "polite" });
    this.heads = element("div", {});
    this.picture = element("div", {});
    this.tree = element("section", { "aria-label": "Beams" });
    this.element = element("section", { class: "side card", "aria-label": `Translator ${letter}` },
      element("div", { class: "row end" }, field(letter === "a" ? "left" : "right", this.chooser), this.kind), this.said, this.heads, this.picture, this.tree);
  }

  set(changes, push = false) {
    this.shell.set(changes, { push });
  }

  show(state, fallback, text, beam) {
    const number = (value) => (value === undefined ? null : Number(value));
    this.model = state[this.letter] ?? fallback;
    if (![...this.chooser.options].some(({ value }) => value === this.model)) this.model = fallback;
    this.chooser.value = this.model;
    [this.layer, this.head] = [number(state[`l${this.letter}`]), number(state[`h${this.letter}`])];
    return this.ask(text, beam);
  }

  asked(text) {
    const head = this.head === null ? {} : { layer: this.layer, head: this.head };
    return { model: this.model, text, ...(this.answer === null || this.answer === undefined ? {} : { answer: this.answer }), ...head };
  }

  /** The best text that the beams find, then where its words came from. */
  async ask(text, beam) {
    const turn = (this.turned = (this.turned ?? 0) + 1);
    this.element.classList.add("busy");
    try {
      const tree = await this.shell.ask("beams", { model: this.model, text, beam });
      if (turn !== this.turned) return;
      this.text = text;
      this.answer = tree.result.found[0].text;
      this.drawTree(tree.result);
      await this.align(turn);
    } catch (error) {
      if (turn !== this.turned) return;
      this.answer = null;
      [this.said, this.heads, this.tree].forEach((part) => part.replaceChildren());
      this.shell.fail(error, this.picture);
    } finally {
      if (turn === this.turned) this.element.classList.remove("busy");
    }
  }

  grow(text, beam) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(text, beam), 150);
  }

  async align(turn = this.turned) {
    const answer = await this.shell.ask("align", { ...this.asked(this.text), html: true });
    if (turn !== this.turned) return;
    const found = answer.result;
    this.found = found;
    [this.layer, this.head] = [found.layer, found.head];
    this.kind.textContent = found.kind === "encoder-decoder" ? "Transformer" : "recurrent, as of 2015";
    this.said.replaceChildren(element("bdi", {}, found.answer.text || "(nothing)"));
    this.heads.replaceChildren(...this.picker(found));
    this.draw(answer, found);
  }

  /** The ribbons first; the map, the ranking and all numbers below, behind a click. */
  draw(answer, found) {
    const drawn = drawing(answer);
    const first = [...drawn.children].find((child) => child.querySelector("peasy-links"));
    const rest = [...drawn.children].filter((child) => child !== first && !(child.matches("p.plain") && found.says.includes(child.textContent)));
    this.picture.replaceChildren(first,
      element("ul", { class: "facts" }, this.facts(found).map((fact) => element("li", {}, fact))),
      element("p", { class: "quiet" }, sentence(found.caveat)),
      element("details", { class: "more" }, element("summary", {}, "The same as a map, and all heads by how well they align"), rest.filter((child) => child.textContent !== sentence(found.caveat))));
  }

  facts({ says, order, source, answer }) {
    const named = (places, words) => places.map((at) => `“${words[at]}”`).join(", ");
    const facts = [...says];
    if (order.left.length) facts.push(`Nobody's partner: ${named(order.left, source.words)}.`);
    if (order.shared.length) facts.push(`Partner of several: ${named(order.shared, source.words)}.`);
    if (!answer.text) facts.push("The answer is empty.");
    return facts;
  }

  picker({ heads, best }) {
    const layers = [...new Set(heads.map(({ layer }) => layer))].sort((a, b) => a - b);
    const count = Math.max(...heads.map(({ head }) => head)) + 1;
    this.size = [layers, count];
    if (heads.length === 1) return [element("p", { class: "quiet" }, "It has one attention with one head.")];
    const grid = element("div", { class: "heads-grid", role: "group", "aria-label": "Layer and head; the star marks the head that aligns best" });
    grid.style.gridTemplateColumns = `auto repeat(${count}, auto)`;
    for (const layer of layers) {
      grid.append(element("span", {}, `layer ${layer}`), ...Array.from({ length: count }, (_, head) => {
        const is = best.layer === layer && best.head === head;
        const chosen = this.layer === layer && this.head === head;
        return element("button", { type: "button", class: is ? "best" : null, "aria-pressed": String(chosen), "aria-label": `layer ${layer}, head ${head}${is ? ", aligns best" : ""}`, onclick: () => this.choose(layer, head) }, is ? `★ ${head}` : String(head));
      }));
    }
    return [element("p", { class: "quiet" }, "Which head: the star marks the one that aligns best."), grid];
  }

  async choose(layer, head) {
    [this.layer, this.head] = [layer, head];
    this.set({ [`l${this.letter}`]: layer, [`h${this.letter}`]: head });
    const label = document.activeElement?.getAttribute("aria-label");
    try {
      await this.align();
      if (label) this.heads.querySelector(`button[aria-label="${CSS.escape(label)}"]`)?.focus();
    } catch (error) {
      this.shell.fail(error, this.picture);
    }
  }

  turn(down, across) {
    if (!this.size || this.size[0].length * this.size[1] < 2) return;
    const [layers, count] = this.size;
    const at = layers.indexOf(this.layer);
    this.choose(layers[Math.min(Math.max(at + down, 0), layers.length - 1)], Math.min(Math.max(this.head + across, 0), count - 1));
  }

  best() {
    this.set({ [`l${this.letter}`]: null, [`h${this.letter}`]: null });
    [this.layer, this.head] = [null, null];
    return this.align().catch((error) => this.shell.fail(error, this.picture));
  }

  drawTree(result) {
    this.tree.replaceChildren(element("h2", {}, result.width === 1 ? "One beam" : `${result.width} beams`), ...drawTree(result));
  }
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
