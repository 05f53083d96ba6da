// Work: attention on paper, step by step, with the library's numbers or one's own.

import { button, element, field, select } from "../element.js";
import { Matrix, readNumber } from "../matrix.js";
import { latex, markdown, csv, numpy } from "../work/copy.js";
import { base, equationOf, headsOf, sectionsOf, usedBy } from "../work/equation.js";
import { FRESH, compact, fieldOf, link, read, resized, withBlock, withNumber } from "../work/example.js";
import { quiz } from "../work/quiz.js";
import { scalePanel } from "../work/scale.js";
import { switches } from "../work/switches.js";

export const page = { name: "work", title: "Work", letter: "w", text: "Any sentence of two words or more, or choose an example below" };

const FIRST = "i-love-ai";
const PLAYING = 1800; // milliseconds a step stays while playing

export async function open(place, state, shell) {
  const desk = new Desk(place, shell);
  await desk.start(state);
  return () => desk.close();
}

class Desk {
  constructor(place, shell) {
    [this.place, this.shell] = [place, shell];
    this.head = element("header", {});
    this.ways = element("div", { class: "ways" });
    this.trail = element("nav", { class: "trail", "aria-label": "Steps" });
    this.board = element("section", { class: "board", "aria-live": "off" });
    this.sum = element("section", { class: "card sum-card", "aria-label": "Arithmetic", role: "status" });
    this.more = element("div", { class: "more" });
    place.append(this.head, this.ways, this.trail, this.board, this.sum, this.more);
    shell.keys.here([
      { key: "ArrowLeft", says: "Step before", run: () => this.step(-1) },
      { key: "ArrowRight", says: "Next step", run: () => this.step(1) },
      { key: "[", says: "Step before", run: () => this.step(-1) },
      { key: "]", says: "Next step", run: () => this.step(1) },
      { key: ",", says: "Head before", run: () => this.turnHead(-1) },
      { key: ".", says: "Next head", run: () => this.turnHead(1) },
      { key: " ", says: "Play the steps, or stop", run: () => this.play() },
    ]);
    shell.exports(() => ({ verb: "explain", body: this.question() }));
    shell.copies(() => this.copies());
    shell.onState((next) => this.start(next));
  }

  close() {
    clearInterval(this.playing);
  }

  async start(state) {
    this.state = state;
    this.own = state.d ? read(state.d) : null;
    this.at = Number(state.s) || 0;
    this.chosenHead = Number(state.h) || 0;
    this.library ??= (await this.shell.ask("examples", {})).result.examples;
    await this.load();
  }

  /** What the server is asked: an example by name, a sentence, or numbers of one's own. */
  what() {
    return this.own ? compact(this.own) : this.state.t?.trim() || this.state.x || FIRST;
  }

  question() {
    return { what: this.what(), decimals: this.decimals() };
  }

  decimals() {
    return Math.min(Math.max(Number(this.state.n ?? 4) || 0, 0), 8);
  }

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.board.classList.add("busy");
    try {
      const answer = await this.shell.ask("explain", { ...this.question(), html: true });
      if (turn !== this.turn) return;
      this.shell.well();
      this.answer = answer.result;
      this.example = this.own ? { ...answer.result.example, ...this.own } : answer.result.example;
      this.formulas = formulasOf(answer.html);
      this.draw();
    } catch (error) {
      if (turn === this.turn) this.shell.fail(error);
    } finally {
      if (turn === this.turn) this.board.classList.remove("busy");
    }
  }

  draw() {
    const heads = headsOf(this.answer.steps);
    this.shownHead = heads.includes(this.chosenHead) ? this.chosenHead : heads[0] ?? 0;
    this.sections = sectionsOf(this.answer.steps, this.shownHead);
    const last = this.sections.findIndex((section) => section.number === this.at);
    this.at = this.sections[last < 0 ? (this.at ? this.sections.length - 1 : Math.min(2, this.sections.length - 1)) : last].number;
    this.drawHead(heads);
    switches(this.ways, this.example, (changes) => this.change({ ...this.example, ...changes }), this);
    this.drawTrail();
    this.drawBoard();
    this.drawMore();
  }

  drawHead(heads) {
    const named = this.library.map(({ name, title }) => [name, title]);
    const current = this.own ? "" : this.state.t ? "sentence" : this.state.x || FIRST;
    const extra = [...(this.own ? [["", "own numbers"]] : []), ...(this.state.t && !this.own ? [["sentence", "the sentence above"]] : [])];
    const chooser = select([...extra, ...named], current, (name) => this.choose(name));
    const headPick = heads.length > 0 && field("head", select(heads.map((head) => [String(head), `head ${head}`]), String(this.shownHead), (head) => this.pickHead(Number(head))));
    const { title, says, source, note } = this.example;
    this.head.replaceChildren(
      element("h1", {}, title || "Work"),
      says ? element("p", {}, `${says}.`) : "",
      note ? element("p", { class: "quiet" }, note) : "",
      source ? element("p", { class: "quiet" }, `From: ${source}`) : "",
      element("div", { class: "row end" }, field("example", chooser), headPick,
        field("decimals", select(["0", "1", "2", "3", "4", "6", "8"], String(this.decimals()), (n) => { this.state = { ...this.state, n }; this.shell.set({ n: n === "4" ? null : n }); this.load(); })),
        button("Own numbers", () => this.change(this.own ?? (this.example.x ? this.example : FRESH)), { title: "Change any number; paste from a spreadsheet" }),
        button("Quiz", () => this.toggleQuiz(), { "aria-pressed": String(Boolean(this.state.quiz)) })));
  }

  choose(name) {
    if (name === "sentence" || name === "") return;
    this.shell.set({ x: name === FIRST ? null : name, t: null, d: null, s: this.at, h: null }, { push: true });
    this.start(this.shell.state);
  }

  /** Other numbers or settings: worked out anew by the server, and kept in the link. */
  change(example) {
    this.own = compact(example);
    this.example = example; // another change may come before the answer to this one
    const text = link(this.own);
    if (text === null) this.shell.bar.flash("Too large for a link: export it as JSON to keep it.");
    this.shell.set({ d: text, t: null, x: null, s: this.at });
    this.state = { ...this.shell.state, d: text ?? "" };
    return this.load();
  }

  drawTrail() {
    const steps = this.sections.map(({ number, title, says }) => element("li", {}, element("button", { type: "button", class: "plain", "aria-current": number === this.at ? "step" : null, "aria-label": `Step ${number}: ${says}`, onclick: () => this.goTo(number) }, element("b", {}, `${number} `), title)));
    const place = this.sections.findIndex(({ number }) => number === this.at);
    this.trail.replaceChildren(
      button("◀", () => this.step(-1), { "aria-label": "Step before", disabled: place === 0 }),
      element("ol", {}, steps),
      button("▶", () => this.step(1), { "aria-label": "Next step", disabled: place === this.sections.length - 1 }),
      element("span", { class: "quiet" }, `step ${place + 1} of ${this.sections.length}`));
  }

  goTo(number) {
    this.at = number;
    this.shell.set({ s: number });
    this.drawTrail();
    this.drawBoard();
    this.drawMore();
    this.shell.say(`Step ${number}: ${this.section().says}`);
  }

  step(by) {
    const next = this.sections[this.sections.findIndex(({ number }) => number === this.at) + by];
    if (next) this.goTo(next.number);
    return Boolean(next);
  }

  play() {
    if (this.playing) {
      clearInterval(this.playing);
      this.playing = null;
      return;
    }
    if (!this.step(1)) this.goTo(this.sections[0].number);
    this.playing = setInterval(() => {
      if (!this.step(1)) this.play();
    }, PLAYING);
  }

  pickHead(head) {
    this.chosenHead = head;
    this.shell.set({ h: head });
    this.draw();
  }

  turnHead(by) {
    const heads = headsOf(this.answer.steps);
    const next = heads[heads.indexOf(this.shownHead) + by];
    if (next) this.pickHead(next);
  }

  section() {
    return this.sections.find(({ number }) => number === this.at);
  }

  /** The equations of this step: operands, signs, result; every number the server's. */
  drawBoard() {
    const quizzed = Boolean(this.state.quiz);
    this.sum.replaceChildren(element("p", { class: "quiet" }, quizzed ? "In a quiz, the arithmetic comes with the marks." : "Click a number (or walk with the arrow keys) to see where it comes from."));
    const lines = this.section().steps.map((step) => this.equation(step, quizzed));
    this.board.replaceChildren(...lines);
    const [step, row, column] = (this.state.c ?? "").split(",");
    const shown = this.matrices?.get(step);
    if (shown && !quizzed) {
      shown.mark(Number(row), Number(column));
      this.pick(shown.spec.step, shown.operands, Number(row), Number(column));
    }
  }

  equation(step, quizzed) {
    this.matrices = step === this.section().steps[0] ? new Map() : this.matrices;
    const operands = [];
    const drawn = equationOf(step, this.answer.steps, this.example).map((part) => {
      if (typeof part === "string") return element("span", { class: "sign" }, part);
      const matrix = new Matrix(this.spec(part.step, part));
      operands.push({ ...part, matrix });
      return matrix.element;
    });
    const field = fieldOf(base(step.name), this.example);
    const result = { ...this.spec(step, {}), math: this.formulas.get(step.name)?.cloneNode(true), says: step.says };
    if (quizzed && !field && step.values.length * step.columns.length <= 400) {
      const asked = quiz(step, result, this.example, this.shell, () => this.drawBoard());
      return element("div", { class: "equation" }, drawn, asked.element);
    }
    const matrix = new Matrix(field ? result : { ...result, onpick: (row, column) => this.pick(step, operands, row, column, true) });
    matrix.operands = operands;
    this.matrices.set(step.name, matrix);
    return element("div", { class: "equation" }, drawn, element("div", {}, matrix.element, field && this.sizes(field, step)));
  }

  spec(step, { transposed = false }) {
    const turned = transposed ? { rows: step.columns, columns: step.rows, values: step.columns.map((_, c) => step.values.map((row) => row[c])), rowAxis: step.column_axis, columnAxis: step.row_axis } : { rows: step.rows, columns: step.columns, values: step.values, rowAxis: step.row_axis, columnAxis: step.column_axis };
    const field = transposed ? null : fieldOf(base(step.name), this.example);
    const name = transposed ? `${step.name}ᵀ` : step.name;
    return { name, step, ...turned, decimals: this.decimals(), shaded: base(step.name) === "weights", edit: field && this.editing(field) };
  }

  editing(field) {
    const rename = ["x", "q", "weights"].includes(field) ? (row, name) => this.change({ ...this.example, tokens: this.example.tokens.map((token, at) => (at === row ? name || token : token)) }) : undefined;
    return {
      change: (row, column, value) => this.change(withNumber(this.example, field, row, column, value)),
      paste: (row, column, grid) => this.change(withBlock(this.example, field, row, column, grid, readNumber)),
      rename,
    };
  }

  /** More or fewer rows and columns. */
  sizes(field, step) {
    const [height, width] = [step.values.length, step.values[0].length];
    const to = (h, w) => () => h > 0 && w > 0 && this.change(resized(this.example, field, h, w));
    const rows = ["x", "q", "source_x"].includes(field);
    return element("div", { class: "row small" },
      rows && button("+ row", to(height + 1, width)), rows && button("− row", to(height - 1, width), { disabled: height < 2 }),
      button("+ column", to(height, width + 1)), button("− column", to(height, width - 1), { disabled: width < 2 }),
      element("span", { class: "quiet" }, "Paste a block from a spreadsheet into any cell."));
  }

  /** One number in full: asked of the server, and what it was made of lit in the operands. */
  async pick(step, operands, row, column, remember = false) {
    operands.forEach((operand) => operand.matrix.light(usedBy(step, operand, row, column)));
    if (remember) this.shell.set({ c: `${step.name},${row},${column}` });
    this.state.c = `${step.name},${row},${column}`;
    try {
      const { result } = await this.shell.ask("explain", { ...this.question(), cell: [step.name, row, column] });
      if (this.state.c !== `${step.name},${row},${column}`) return;
      this.sum.replaceChildren(element("strong", {}, result.cell.title), ...result.cell.lines.map((line) => element("pre", {}, line)));
    } catch (error) {
      this.shell.fail(error, this.sum);
    }
  }

  toggleQuiz() {
    this.shell.set({ quiz: this.state.quiz ? null : 1 });
    this.state = this.shell.state;
    this.draw();
  }

  drawMore() {
    const at = this.at;
    const parts = [];
    if (at === 4) parts.push(scalePanel(this.shell, Number(this.state.dk) || 64, (width) => { this.state.dk = width; this.shell.set({ dk: width }); }));
    if (at === 5 && this.answer.steps.some((step) => base(step.name) === "scores")) parts.push(this.bySum());
    this.more.replaceChildren(...parts);
  }

  /** The same scores normalised by softmax and by the sum, side by side; what does not go is told in its place. */
  bySum() {
    const sides = [["softmax", "softmax"], ["sum", "division by the sum"]].map(([normalise, name]) => {
      const home = element("div", {});
      this.normalised(normalise, name).then((made) => home.replaceChildren(made), (error) => this.shell.fail(error, home));
      return home;
    });
    return element("section", { class: "card", "aria-label": "Softmax or division by the sum" }, element("h2", {}, "Softmax or division by the sum?"),
      element("p", { class: "quiet" }, "Both make each row add up to 1. Divided by the sum, a negative score gives a negative share, a row that sums to 0 has none at all, and a large score stands out less."),
      element("div", { class: "equation" }, sides));
  }

  async normalised(normalise, name) {
    const { result } = await this.shell.ask("explain", { what: { ...compact(this.example), normalise }, decimals: this.decimals() });
    const step = result.steps.find((each) => each.name === (this.shownHead ? `head-${this.shownHead}.weights` : "weights"));
    const odd = step.values.flat().some((value) => value < 0 || value > 1);
    const says = odd ? "Some lie below 0 or above 1: these are no shares." : "Every share lies between 0 and 1.";
    return new Matrix({ ...this.spec(step, {}), edit: null, name, says, shaded: true }).element;
  }

  copies() {
    const step = this.section().steps.at(-1);
    const called = step.name;
    return [
      { label: `LaTeX (${called})`, text: latex(step, this.decimals()) },
      { label: `Markdown (${called})`, text: markdown(step, this.decimals()) },
      { label: `CSV (${called})`, text: csv(step, this.decimals()) },
      { label: `NumPy (${called})`, text: numpy([step]) },
      { label: "NumPy (all steps)", text: () => numpy(this.answer.steps) },
    ];
  }
}

/** The formulas of the steps as the server drew them, by name. */
function formulasOf(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const found = new Map();
  parsed.querySelectorAll("figure.matrix caption").forEach((caption) => {
    const math = caption.querySelector(".formula math");
    if (math) found.set(caption.querySelector(".name")?.textContent, document.importNode(math, true));
  });
  return found;
}
