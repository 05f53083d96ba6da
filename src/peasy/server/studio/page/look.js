// Page Look: attention of any model on the user's text, from all heads to one head to one number.

import { renderDocument } from "../document.js";
import { button, element } from "../element.js";
import { ablations, effectPanel, nextTokenLine, readHeads, writeHeads } from "../look/effect.js";
import { caveatLine, rankingPanel } from "../look/ranking.js";
import { tabs } from "../tabs.js";

const NO_ATTENTION = ["ngram", "words", "recurrent", "convolution"];
const hasAttention = (model) => !NO_ATTENTION.includes(model.is);

export const page = { name: "look", title: "Look", letter: "l", model: hasAttention, text: "A sentence to inspect" };

const DEFAULT_TEXT = "The pizza came out of the oven and it";
const LONG_TEXT = 600; // characters above which the tokens are counted before the attention is requested
const MAX_TOKENS = 160; // more are shown as a tiled overview
const EXACT_ROWS = 16; // rows of a long text that are requested exactly, around the selected one

export async function open(place, state, shell) {
  const lookPage = new LookPage(place, shell);
  await lookPage.start(state);
  return () => {};
}

class LookPage {
  constructor(place, shell) {
    [this.place, this.shell] = [place, shell];
    this.header = element("header", {});
    this.picture = element("section", { "aria-label": "Attention" });
    this.ablationPanel = element("section", { class: "card", "aria-label": "Next token and ablated heads" });
    this.tabs = tabs([
      { name: "attention", title: "Attention", show: () => this.showAttention() },
      { name: "steps", title: "Step by step", show: () => this.showSteps() },
      { name: "heads", title: "Heads", show: () => this.showHeads() },
      { name: "lens", title: "Logit lens", show: () => this.showLens() },
    ], (name) => { this.shell.setState({ tab: name === "attention" ? null : name }); this.state.tab = name; });
    place.append(this.header, this.tabs.element);
    const moveMap = (layerStep, headStep) => () => this.maps?.selectMap(this.maps.mapRow + layerStep, this.maps.mapColumn + headStep);
    const moveCell = (rows, columns) => () => this.maps?.moveSelection(rows, columns);
    shell.keys.addPageKeys([
      { key: "[", label: "Previous layer", run: moveMap(-1, 0) }, { key: "]", label: "Next layer", run: moveMap(1, 0) },
      { key: ",", label: "Previous head", run: moveMap(0, -1) }, { key: ".", label: "Next head", run: moveMap(0, 1) },
      { key: "ArrowUp", label: "Previous query", run: moveCell(-1, 0) }, { key: "ArrowDown", label: "Next query", run: moveCell(1, 0) },
      { key: "ArrowLeft", label: "Previous key", run: moveCell(0, -1) }, { key: "ArrowRight", label: "Next key", run: moveCell(0, 1) },
      { key: "o", label: "Switch this head off or on", run: () => this.toggleHead(this.layer, this.head) },
      { key: "s", label: "This row step by step", run: () => this.tabs.choose("steps") },
    ]);
    shell.setExports(() => ({ command: "look", body: this.exportBody() }));
    shell.setCopyItems(() => [{ label: "Result as JSON", text: () => JSON.stringify(this.response?.result) }]);
    shell.onStateChange((state) => this.start(state));
  }

  async start(state) {
    this.state = { ...state };
    this.headChosen = state.l !== undefined || state.h !== undefined;
    [this.layer, this.head] = [Number(state.l) || 0, Number(state.h) || 0];
    [this.query, this.key] = [state.q === undefined ? null : Number(state.q), state.k === undefined ? null : Number(state.k)];
    this.ablatedHeads = readHeads(state.off);
    try {
      this.model = await this.shell.modelName(hasAttention);
    } catch (error) {
      return this.shell.showError(error);
    }
    this.text = state.t?.trim() || DEFAULT_TEXT;
    this.isLong = await this.checkLength();
    await Promise.all([this.tabs.choose(state.tab ?? "attention", false), this.drawHeader()]);
    return undefined;
  }

  requestBody(fields = {}) {
    return { model: this.model, text: this.text, ...fields };
  }

  /** Position of the selected query among the tokens; a whole word is represented by its last token. */
  queryField() {
    if (this.query === null) return {};
    const groups = this.state.w ? this.response?.result.tokens.groups : null;
    return { query: groups?.[this.query]?.at(-1) ?? this.query };
  }

  exportBody() {
    const edit = ablations(this.ablatedHeads);
    const tab = this.state.tab ?? "attention";
    if (tab === "lens") return this.requestBody({ view: "lens", edit });
    if (tab === "heads") return this.requestBody({ view: "rank", by: this.state.by ?? "sharpness" });
    if (tab === "steps") return this.requestBody({ view: "work", layers: [this.layer], heads: [this.head], edit, ...this.queryField() });
    return this.requestBody(this.isLong ? { ...this.overviewFields(), edit } : { edit, words: Boolean(this.state.w) });
  }

  async checkLength() {
    if (this.text.length < LONG_TEXT) return false;
    const { result } = await this.shell.request("tokenize", this.requestBody());
    return (result.ids ?? result.tokens).length > MAX_TOKENS;
  }

  /** For a long text: all tiles of one layer, and exact rows around the selected one. */
  overviewFields() {
    const first = Math.max(0, (this.query ?? 0) - EXACT_ROWS / 2);
    return { overview: "max", layers: [this.layer], rows: Array.from({ length: EXACT_ROWS }, (_, index) => first + index) };
  }

  async drawHeader() {
    this.header.replaceChildren(element("h1", {}, "Look"), element("p", { class: "sentence" }, element("bdi", {}, this.text.length > 400 ? `${this.text.slice(0, 400)} …` : this.text)));
  }

  async showAttention() {
    const container = element("div", {}, this.ablationPanel, this.picture);
    this.picture.classList.add("busy");
    this.runRequest(async () => {
      const edit = ablations(this.ablatedHeads);
      const response = await this.shell.request("look", this.requestBody({ ...(this.isLong ? this.overviewFields() : { words: Boolean(this.state.w) }), edit, html: true }));
      this.response = response;
      await this.draw(response);
      await this.drawAblation();
    }, this.picture);
    return container;
  }

  /** Run a request and show its errors in `container`; errors of outdated requests are ignored. */
  async runRequest(work, container) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      await work();
      if (turn === this.turn) this.shell.clearError();
    } catch (error) {
      if (turn === this.turn) this.shell.showError(error, container);
    } finally {
      container.classList.remove("busy");
    }
  }

  draw(response) {
    const rendered = renderDocument(response);
    this.maps = mainMaps(rendered);
    // The interactive map draws its own links, and the next token is shown above it.
    if (this.maps) rendered.querySelectorAll(".figure:has(peasy-links), figure.table:not(details *)").forEach((figure) => figure.remove());
    this.maps?.addEventListener("peasy-select", ({ detail }) => this.onSelect(detail));
    const caveat = response.result.caveat ?? "";
    const isMissing = !rendered.textContent.toLowerCase().includes(caveat.toLowerCase());
    this.picture.replaceChildren(...[this.isLong && this.overviewNote(response.result), rendered, caveat && isMissing && caveatLine(caveat)].filter(Boolean));
    return this.maps?.ready?.then(() => this.restoreSelection());
  }

  overviewNote(result) {
    const numTokens = result.tokens.ids.length;
    return element("p", { class: "note" }, `${numTokens.toLocaleString("en")} tokens: the map is an overview in tiles of one layer. Click a tile to see its rows exactly below.`);
  }

  /** Select the head and cell of the URL; without them, the head that the server suggests. */
  restoreSelection() {
    const { maps } = this;
    if (!this.headChosen && !this.isLong) [this.layer, this.head, this.headChosen] = [maps.mapRow, maps.mapColumn, true];
    maps.mapRow = this.isLong ? 0 : Math.min(this.layer, maps.numMapRows - 1);
    maps.mapColumn = Math.min(this.head, maps.numMapColumns - 1);
    const { tile } = maps.data;
    const row = this.query === null ? (tile === 1 ? maps.rows - 1 : maps.row) : Math.min(Math.floor(this.query / tile), maps.rows - 1);
    maps.selectCell(row, this.key === null ? strongestKey(maps, row) : Math.min(Math.floor(this.key / tile), maps.columns - 1));
    maps.redraw();
  }

  onSelect({ mapRow, mapColumn, row, column }) {
    const { tile } = this.maps.data;
    const previousQuery = this.query;
    this.layer = this.isLong ? this.layer : mapRow;
    this.head = mapColumn;
    [this.query, this.key] = [row < 0 ? null : row * tile, column < 0 ? null : column * tile];
    this.shell.setState({ l: this.layer, h: this.head, q: this.query, k: this.key });
    this.drawAblation();
    if (this.isLong && tile > 1 && previousQuery !== this.query) this.tabs.choose("attention", false);
  }

  /** Show the ablated heads and their effect on the next token. */
  async drawAblation() {
    const { layer, head } = this;
    const isOff = this.ablatedHeads.some((ablated) => ablated.layer === layer && ablated.head === head);
    const chips = this.ablatedHeads.map((ablated) => button(`layer ${ablated.layer}, head ${ablated.head} ×`, () => this.toggleHead(ablated.layer, ablated.head), { "aria-label": `Switch layer ${ablated.layer}, head ${ablated.head} on again` }));
    const effect = element("div", { role: "status" });
    this.ablationPanel.replaceChildren(
      nextTokenLine(this.response?.result.next) ?? "",
      element("div", { class: "row" },
        button(isOff ? `Switch layer ${layer}, head ${head} on again` : `Switch layer ${layer}, head ${head} off`, () => this.toggleHead(layer, head), { "aria-pressed": String(isOff), class: "plain switch" }),
        chips.length > 0 && element("span", { class: "quiet" }, "off:"), chips,
        button("This row step by step", () => this.tabs.choose("steps")),
        !this.isLong && button("Whole words", () => this.toggleWords(), { "aria-pressed": String(Boolean(this.state.w)), title: "Merge sub-word tokens into words" })),
      effect);
    if (!this.ablatedHeads.length) return;
    try {
      const { result } = await this.shell.request("look", this.requestBody({ view: "effect", edit: ablations(this.ablatedHeads), layers: [layer], heads: [head] }));
      effect.replaceChildren(effectPanel(result));
    } catch (error) {
      this.shell.showError(error, effect);
    }
  }

  toggleWords() {
    this.state.w = this.state.w ? "" : "1";
    [this.query, this.key] = [null, null];
    this.shell.setState({ w: this.state.w, q: null, k: null });
    this.tabs.choose("attention", false);
  }

  toggleHead(layer, head) {
    const others = this.ablatedHeads.filter((ablated) => ablated.layer !== layer || ablated.head !== head);
    this.ablatedHeads = others.length < this.ablatedHeads.length ? others : [...this.ablatedHeads, { layer, head }];
    this.state.off = writeHeads(this.ablatedHeads);
    this.shell.setState({ off: this.state.off || null }, { push: true });
    this.tabs.choose(this.state.tab ?? "attention", false);
  }

  showSteps() {
    const container = element("div", { class: "busy" });
    const queryField = this.queryField();
    this.runRequest(async () => {
      const response = await this.shell.request("look", this.requestBody({ view: "work", layers: [this.layer], heads: [this.head], edit: ablations(this.ablatedHeads), html: true, ...queryField }));
      const { target, tokens, caveat } = response.result;
      const queryLabel = this.query !== null && element("span", {}, "query: ", element("bdi", {}, (target ?? tokens).pieces[queryField.query] ?? ""));
      const showAllRows = () => {
        this.query = null;
        this.shell.setState({ q: null, k: null });
        this.tabs.choose("steps", false);
      };
      const head = element("div", { class: "row" }, element("b", {}, `Layer ${this.layer}, head ${this.head}`), queryLabel, button("All rows", showAllRows, { disabled: this.query === null }), button("Back to the map", () => this.tabs.choose("attention")));
      container.replaceChildren(head, renderDocument(response), caveatLine(caveat));
    }, container);
    return container;
  }

  showHeads() {
    const container = element("div", { class: "busy" });
    this.runRequest(async () => {
      const response = await this.shell.request("look", this.requestBody({ view: "rank", by: this.state.by ?? "sharpness", html: true }));
      const onSort = (score) => {
        this.state.by = score;
        this.shell.setState({ by: score });
        show(score);
      };
      const show = (score) => container.replaceChildren(rankingPanel(response, score, (layer, head) => this.openHead(layer, head), onSort));
      show(this.state.by ?? "sharpness");
    }, container);
    return container;
  }

  openHead(layer, head) {
    [this.layer, this.head] = [layer, head];
    this.shell.setState({ l: layer, h: head }, { push: true });
    this.tabs.choose("attention");
  }

  showLens() {
    const container = element("div", { class: "busy" });
    this.runRequest(async () => {
      const response = await this.shell.request("look", this.requestBody({ view: "lens", edit: ablations(this.ablatedHeads), html: true }));
      container.replaceChildren(renderDocument(response));
    }, container);
    return container;
  }
}

/** The figure of layer and head in the URL: of an encoder-decoder, the self-attention of the decoder. */
function mainMaps(rendered) {
  const figures = [...rendered.querySelectorAll("peasy-maps")];
  const heading = (maps) => maps.closest(".figure").previousElementSibling?.textContent ?? "";
  return figures.find((maps) => heading(maps).startsWith("Decoder: self")) ?? figures[0] ?? null;
}

/** The key with the largest weight in a row. */
function strongestKey(maps, row) {
  const weights = maps.data.tile === 1 ? maps.rowWeights(row) : null;
  if (!weights) return Math.max(maps.column, 0);
  const values = Array.from({ length: weights.count }, (_, key) => weights.at(key));
  return values.reduce((best, value, key) => (value > values[best] || Number.isNaN(values[best]) ? key : best), 0);
}
