// Look: one's own sentence through any model; from all heads to one head to one number, never losing the sentence.

import { drawing } from "../draw.js";
import { button, element } from "../element.js";
import { asEdits, effect, nextLine, readHeads, writeHeads } from "../look/effect.js";
import { quiet, ranking } from "../look/heads.js";
import { tabs } from "../tabs.js";

const BLIND = ["ngram", "words", "recurrent", "convolution"];
const sees = (model) => !BLIND.includes(model.is);

export const page = { name: "look", title: "Look", letter: "l", model: sees, text: "A sentence to look into" };

const FIRST = "The pizza came out of the oven and it";
const LONG = 600; // characters from which the tokens are counted before all is asked for
const MOST_TOKENS = 160; // more are shown as an overview with a window
const WINDOW = 16; // rows kept in full of a long text, around the chosen one

export async function open(place, state, shell) {
  const view = new View(place, shell);
  await view.start(state);
  return () => {};
}

class View {
  constructor(place, shell) {
    [this.place, this.shell] = [place, shell];
    this.top = element("header", {});
    this.picture = element("section", { "aria-label": "Attention" });
    this.beside = element("section", { class: "card", "aria-label": "The next word, and heads switched off" });
    this.under = element("section", { class: "under" });
    this.tabs = tabs([
      { name: "attention", title: "Attention", show: () => this.showAttention() },
      { name: "steps", title: "Step by step", show: () => this.showSteps() },
      { name: "heads", title: "Heads", show: () => this.showHeads() },
      { name: "lens", title: "Lens", show: () => this.showLens() },
    ], (name) => { this.shell.set({ tab: name === "attention" ? null : name }); this.state.tab = name; });
    place.append(this.top, this.tabs.element);
    const turn = (down, across) => () => this.maps && this.maps.choose(this.maps.down + down, this.maps.across + across);
    const move = (rows, columns) => () => this.maps?.step(rows, columns);
    shell.keys.here([
      { key: "[", says: "Layer before", run: turn(-1, 0) }, { key: "]", says: "Next layer", run: turn(1, 0) },
      { key: ",", says: "Head before", run: turn(0, -1) }, { key: ".", says: "Next head", run: turn(0, 1) },
      { key: "ArrowUp", says: "Query before", run: move(-1, 0) }, { key: "ArrowDown", says: "Next query", run: move(1, 0) },
      { key: "ArrowLeft", says: "Key before", run: move(0, -1) }, { key: "ArrowRight", says: "Next key", run: move(0, 1) },
      { key: "o", says: "Switch this head off or on", run: () => this.turnOff(this.l, this.h) },
      { key: "s", says: "This row step by step", run: () => this.tabs.choose("steps") },
    ]);
    shell.exports(() => ({ verb: "look", body: this.exported() }));
    shell.copies(() => [{ label: "The answer as JSON", text: () => JSON.stringify(this.answer?.result) }]);
    shell.onState((next) => this.start(next));
  }

  async start(state) {
    this.state = { ...state };
    this.named = state.l !== undefined || state.h !== undefined;
    [this.l, this.h] = [Number(state.l) || 0, Number(state.h) || 0];
    [this.q, this.k] = [state.q === undefined ? null : Number(state.q), state.k === undefined ? null : Number(state.k)];
    this.off = readHeads(state.off);
    try {
      this.model = await this.shell.model(sees);
    } catch (error) {
      return this.shell.fail(error);
    }
    this.text = state.t?.trim() || FIRST;
    this.long = await this.isLong();
    await Promise.all([this.tabs.choose(state.tab ?? "attention", false), this.told()]);
    return undefined;
  }

  asked(more = {}) {
    return { model: this.model, text: this.text, ...more };
  }

  /** The place of the chosen query among the tokens; a word is asked for by its last token. */
  query() {
    if (this.q === null) return {};
    const groups = this.state.w ? this.answer?.result.tokens.groups : null;
    return { query: groups?.[this.q]?.at(-1) ?? this.q };
  }

  exported() {
    const edit = asEdits(this.off);
    const tab = this.state.tab ?? "attention";
    if (tab === "lens") return this.asked({ view: "lens", edit });
    if (tab === "heads") return this.asked({ view: "rank", by: this.state.by ?? "sharpness" });
    if (tab === "steps") return this.asked({ view: "work", layers: [this.l], heads: [this.h], edit, ...this.query() });
    return this.asked(this.long ? { ...this.windowed(), edit } : { edit, words: Boolean(this.state.w) });
  }

  async isLong() {
    if (this.text.length < LONG) return false;
    const { result } = await this.shell.ask("tokenize", this.asked());
    return (result.ids ?? result.tokens).length > MOST_TOKENS;
  }

  /** Of a long text: every tile of one layer, and the rows around the chosen one in full. */
  windowed() {
    const first = Math.max(0, (this.q ?? 0) - WINDOW / 2);
    return { overview: "max", layers: [this.l], rows: Array.from({ length: WINDOW }, (_, at) => first + at) };
  }

  /** The sentence, what comes next, and what is switched off. */
  async told() {
    this.top.replaceChildren(element("h1", {}, "Look"), element("p", { class: "sentence" }, element("bdi", {}, this.text.length > 400 ? `${this.text.slice(0, 400)} …` : this.text)));
  }

  async showAttention() {
    const home = element("div", {}, this.beside, this.picture);
    this.picture.classList.add("busy");
    this.ask(async () => {
      const edit = asEdits(this.off);
      const answer = await this.shell.ask("look", this.asked({ ...(this.long ? this.windowed() : { words: Boolean(this.state.w) }), edit, html: true }));
      this.answer = answer;
      await this.draw(answer);
      await this.drawOff();
    }, this.picture);
    return home;
  }

  /** Do it; errors are shown where the picture would be. Answers of an older question are left aside. */
  async ask(work, where) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      await work(() => turn === this.turn);
      if (turn === this.turn) this.shell.well();
    } catch (error) {
      if (turn === this.turn) this.shell.fail(error, where);
    } finally {
      where.classList.remove("busy");
    }
  }

  draw(answer) {
    const drawn = drawing(answer);
    this.maps = mainMaps(drawn);
    // The live map draws its own words and lines, and what comes next stands above it already.
    if (this.maps) drawn.querySelectorAll(".figure:has(peasy-links), figure.table:not(details *)").forEach((figure) => figure.remove());
    this.maps?.addEventListener("peasy-select", ({ detail }) => this.selected(detail));
    const caveat = answer.result.caveat ?? "";
    const said = !drawn.textContent.toLowerCase().includes(caveat.toLowerCase());
    this.picture.replaceChildren(...[this.long && this.longNote(answer.result), drawn, caveat && said && quiet(caveat)].filter(Boolean));
    return this.maps?.ready?.then(() => this.restore());
  }

  longNote(result) {
    const count = result.tokens.ids.length;
    return element("p", { class: "note" }, `${count.toLocaleString("en")} tokens: the map is an overview in tiles of one layer. Click a tile to read its rows in full below.`);
  }

  /** The head and the cell that the URL names; without them, the head that the server thinks worth a look. */
  restore() {
    const { maps } = this;
    if (!this.named && !this.long) [this.l, this.h, this.named] = [maps.down, maps.across, true];
    maps.down = this.long ? 0 : Math.min(this.l, maps.downs - 1);
    maps.across = Math.min(this.h, maps.acrosses - 1);
    const tile = maps.data.tile;
    const row = this.q === null ? (tile === 1 ? maps.rows - 1 : maps.row) : Math.min(Math.floor(this.q / tile), maps.rows - 1);
    maps.point(row, this.k === null ? strongest(maps, row) : Math.min(Math.floor(this.k / tile), maps.columns - 1));
    maps.redraw();
  }

  selected({ down, across, row, column }) {
    const tile = this.maps.data.tile;
    const rowBefore = this.q;
    this.l = this.long ? this.l : down;
    this.h = across;
    [this.q, this.k] = [row < 0 ? null : row * tile, column < 0 ? null : column * tile];
    this.shell.set({ l: this.l, h: this.h, q: this.q, k: this.k });
    this.drawOff();
    if (this.long && tile > 1 && rowBefore !== this.q) this.tabs.choose("attention", false);
  }

  /** Which heads are off, and what that does to the next word. */
  async drawOff() {
    const here = this.off.some(({ layer, head }) => layer === this.l && head === this.h);
    const listed = this.off.map(({ layer, head }) => button(`layer ${layer}, head ${head} ×`, () => this.turnOff(layer, head), { "aria-label": `Switch layer ${layer}, head ${head} on again` }));
    const changed = element("div", { role: "status" });
    this.beside.replaceChildren(
      nextLine(this.answer?.result.next) ?? "",
      element("div", { class: "row" },
        button(here ? `Switch layer ${this.l}, head ${this.h} on again` : `Switch layer ${this.l}, head ${this.h} off`, () => this.turnOff(this.l, this.h), { "aria-pressed": String(here), class: "plain switch" }),
        listed.length > 0 && element("span", { class: "quiet" }, "off:"), listed,
        button("Step by step of this row", () => this.tabs.choose("steps")),
        !this.long && button("Whole words", () => this.turnWords(), { "aria-pressed": String(Boolean(this.state.w)), title: "Sub-words joined to words" })),
      changed);
    if (!this.off.length) return;
    try {
      const { result } = await this.shell.ask("look", this.asked({ view: "effect", edit: asEdits(this.off), layers: [this.l], heads: [this.h] }));
      changed.replaceChildren(effect(result));
    } catch (error) {
      this.shell.fail(error, changed);
    }
  }

  turnWords() {
    this.state.w = this.state.w ? "" : "1";
    [this.q, this.k] = [null, null];
    this.shell.set({ w: this.state.w, q: null, k: null });
    this.tabs.choose("attention", false);
  }

  turnOff(layer, head) {
    const there = this.off.some((each) => each.layer === layer && each.head === head);
    this.off = there ? this.off.filter((each) => each.layer !== layer || each.head !== head) : [...this.off, { layer, head }];
    this.state.off = writeHeads(this.off);
    this.shell.set({ off: this.state.off || null }, { push: true });
    this.tabs.choose(this.state.tab ?? "attention", false);
  }

  showSteps() {
    const home = element("div", { class: "busy" });
    const row = this.query();
    this.ask(async () => {
      const answer = await this.shell.ask("look", this.asked({ view: "work", layers: [this.l], heads: [this.h], edit: asEdits(this.off), html: true, ...row }));
      const head = element("div", { class: "row" }, element("b", {}, `Layer ${this.l}, head ${this.h}`), this.q !== null && element("span", {}, "query: ", element("bdi", {}, (answer.result.target ?? answer.result.tokens).pieces[row.query] ?? "")), button("All rows", () => { this.q = null; this.shell.set({ q: null, k: null }); this.tabs.choose("steps", false); }, { disabled: this.q === null }), button("Back to the picture", () => this.tabs.choose("attention")));
      home.replaceChildren(head, drawing(answer), quiet(answer.result.caveat));
    }, home);
    return home;
  }

  showHeads() {
    const home = element("div", { class: "busy" });
    const by = this.state.by ?? "sharpness";
    this.ask(async () => {
      const answer = await this.shell.ask("look", this.asked({ view: "rank", by, html: true }));
      const show = (rank) => home.replaceChildren(ranking(answer, rank, (layer, head) => this.goTo(layer, head), (chosen) => { this.state.by = chosen; this.shell.set({ by: chosen }); show(chosen); }));
      show(by);
    }, home);
    return home;
  }

  goTo(layer, head) {
    [this.l, this.h] = [layer, head];
    this.shell.set({ l: layer, h: head }, { push: true });
    this.tabs.choose("attention");
  }

  showLens() {
    const home = element("div", { class: "busy" });
    this.ask(async () => {
      const answer = await this.shell.ask("look", this.asked({ view: "lens", edit: asEdits(this.off), html: true }));
      home.replaceChildren(drawing(answer));
    }, home);
    return home;
  }
}

/** The figure that layer and head of the URL speak about: of a translator, that of what it writes. */
function mainMaps(drawn) {
  const all = [...drawn.querySelectorAll("peasy-maps")];
  const above = (maps) => maps.closest(".figure").previousElementSibling?.textContent ?? "";
  return all.find((maps) => above(maps).startsWith("Decoder: self")) ?? all[0] ?? null;
}

/** What a row looks at most. */
function strongest(maps, row) {
  const found = maps.data.tile === 1 ? maps.weightsOf(row) : null;
  if (!found) return Math.max(maps.column, 0);
  const all = Array.from({ length: found.count }, (_, key) => found.at(key));
  return all.reduce((best, value, key) => (value > all[best] || Number.isNaN(all[best]) ? key : best), 0);
}
