// Generate: tokens one by one, what else could have come, what each looked at, and what the cache saves.

import { cachePicture } from "../generate/cache.js";
import { chances } from "../generate/chances.js";
import { layersOf, looked } from "../generate/looked.js";
import { drawing } from "../draw.js";
import { button, element, field, slider } from "../element.js";

const SILENT = ["encoder", "words", "encoder-decoder", "recurrent-translator", "bert", "roberta", "distilbert", "marian", "t5"];
const writes = (model) => !SILENT.includes(model.is);

export const page = { name: "generate", title: "Generate", letter: "g", model: writes, text: "A beginning for the model to write on from" };

const FIRST = "The pizza came out of the oven and it";
const PACE = 140; // milliseconds between two tokens, so that eyes can follow
const CALM = matchMedia("(prefers-reduced-motion: reduce)");

export async function open(place, state, shell) {
  const desk = new Desk(place, shell);
  await desk.start(state);
  return () => desk.halt();
}

class Desk {
  constructor(place, shell) {
    [this.place, this.shell] = [place, shell];
    this.controls = element("div", { class: "card" });
    this.line = element("p", { class: "tokens", "data-arrows": "" });
    this.bars = element("section", { class: "card", "aria-label": "What could come next" });
    this.seen = element("section", { class: "card", "aria-label": "What it looked at" });
    this.kept = element("section", { class: "card", "aria-label": "The cache" });
    this.compared = element("section", {});
    place.append(element("h1", {}, "Generate"), this.controls, this.line, element("div", { class: "split" }, this.bars, element("div", {}, this.seen, this.kept)), this.compared);
    shell.keys.here([
      { key: " ", says: "Write on, or pause", run: () => this.toggle() },
      { key: "n", says: "One token", run: () => this.one() },
      { key: "ArrowLeft", says: "Token before", run: () => this.choose(this.at - 1) },
      { key: "ArrowRight", says: "Next token", run: () => this.choose(this.at + 1) },
      { key: "[", says: "Layer before", run: () => this.turn(this.l - 1, this.h) },
      { key: "]", says: "Next layer", run: () => this.turn(this.l + 1, this.h) },
      { key: ",", says: "Head before", run: () => this.turn(this.l, this.h - 1) },
      { key: ".", says: "Next head", run: () => this.turn(this.l, this.h + 1) },
    ]);
    shell.exports(() => ({ verb: "trace", body: this.traced() }));
    shell.copies(() => [{ label: "The text", text: this.text + this.steps.map(({ piece }) => piece.replaceAll("·", " ")).join("") }]);
    shell.onState((next) => this.start(next));
  }

  async start(state) {
    this.halt();
    this.state = state;
    const number = (name, usual) => (state[name] === undefined || Number.isNaN(Number(state[name])) ? usual : Number(state[name]));
    this.bent = { temperature: number("temp", 0.8), top_k: number("topk", 0), top_p: number("topp", 1) };
    [this.seed, this.most] = [number("seed", 1), number("n", 24)];
    [this.l, this.h] = [number("l", 0), number("h", 0)];
    [this.steps, this.waiting, this.prompt, this.at] = [[], [], null, 0];
    this.compared.replaceChildren();
    this.drawControls();
    try {
      this.model = await this.shell.model(writes);
    } catch (error) {
      return this.shell.fail(error);
    }
    this.text = state.t?.trim() ? state.t : FIRST;
    const wanted = number("at", -1);
    await this.weigh();
    if (wanted >= 0) await this.run(true, wanted);
    return undefined;
  }

  halt() {
    clearInterval(this.timer);
    this.timer = null;
    this.stopping?.abort();
    this.stopping = null;
  }

  question(more = {}) {
    const { temperature, top_k, top_p } = this.bent;
    return { model: this.model, text: this.text, temperature, top_p, ...(top_k ? { top_k } : {}), ...more };
  }

  traced() {
    return this.question({ max_tokens: Math.max(this.steps.length, 1), seed: this.seed });
  }

  drawControls() {
    const bend = (name, key) => (value) => {
      this.bent = { ...this.bent, [name]: value };
      this.shell.set({ [key]: value });
      this.weigh();
    };
    const whole = (value, key, least, most) => element("input", { type: "number", min: least, max: most, value, onchange: (event) => { this[key === "seed" ? "seed" : "most"] = Math.min(Math.max(Number(event.target.value) || least, least), most); this.shell.set({ [key]: event.target.value }); } });
    this.player = button("Write on", () => this.toggle(), { class: "plain main" });
    this.controls.replaceChildren(
      element("div", { class: "row" },
        slider("temperature", { min: 0, max: 2, step: 0.05, value: this.bent.temperature, write: (value) => value.toFixed(2) }, bend("temperature", "temp")),
        slider("top-k", { min: 0, max: 50, step: 1, value: this.bent.top_k, write: (value) => (value ? String(value) : "all") }, bend("top_k", "topk")),
        slider("top-p", { min: 0.05, max: 1, step: 0.05, value: this.bent.top_p, write: (value) => value.toFixed(2) }, bend("top_p", "topp"))),
      element("div", { class: "row end" },
        this.player, button("One token", () => this.one()), button("Start again", () => { this.shell.set({ at: null }); this.start(this.shell.state); }),
        field("seed", whole(this.seed, "seed", 0, 1e6)), field("tokens", whole(this.most, "n", 1, 200)),
        button("Look into this text", () => this.shell.go("look", { m: this.model, t: this.whole() }))));
  }

  whole() {
    return this.text + this.steps.map(({ piece }) => piece.replaceAll("·", " ")).join("");
  }

  /** The tokens up to the chosen place: what the shown candidates come after. */
  before() {
    return this.steps.slice(0, this.at).map(({ id }) => id);
  }

  /** What could come at the chosen place, by the sliders as they stand; asked anew at every move. */
  async weigh() {
    this.weighing?.abort();
    const asking = (this.weighing = new AbortController());
    try {
      const { result } = await this.shell.ask("chances", this.question({ written: this.before() }), { signal: asking.signal });
      if (asking !== this.weighing) return;
      this.shell.well();
      const taken = this.steps[this.at];
      this.bars.replaceChildren(element("h2", {}, "What could come ", taken ? "here" : "next"), chances(result, taken?.id ?? null, (choice) => this.take(choice)));
      if (!this.steps.length) this.drawLine();
    } catch (error) {
      this.shell.fail(error, this.bars);
    }
  }

  /** A person chooses the token: the step is the server's, only which candidate stands in the text is theirs. */
  async take({ id, piece, chance }) {
    this.pause();
    await this.begin(this.at, 1);
    await this.heard;
    if (!this.waiting.length) return;
    this.waiting = [{ ...this.waiting[0], id, piece, chance }];
    this.reveal();
  }

  toggle() {
    if (this.timer) return this.pause();
    return this.run(false);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.player.textContent = "Write on";
  }

  /** Show tokens as they come, at a pace that can be followed; at once where motion is not wanted. */
  async run(atOnce, until = Infinity) {
    this.at = this.steps.length;
    if (!this.stopping && !this.waiting.length) await this.begin(this.steps.length);
    if (atOnce) {
      await this.heard;
      while (this.waiting.length && this.steps.length < until) this.reveal(false);
      return this.choose(this.steps.length ? this.steps.length - 1 : 0);
    }
    this.player.textContent = "Pause";
    this.timer = setInterval(() => {
      if (this.waiting.length) this.reveal();
      else if (!this.stopping) {
        this.pause();
        this.weigh();
        this.saved();
      }
    }, CALM.matches ? 0 : PACE);
    return undefined;
  }

  async one() {
    this.pause();
    if (this.at < this.steps.length) await this.begin(this.at);
    this.at = this.steps.length;
    if (!this.waiting.length && !this.stopping) await this.begin(this.steps.length);
    for (let tries = 0; !this.waiting.length && this.stopping && tries < 400; tries++) await new Promise((done) => setTimeout(done, 25));
    if (this.waiting.length) this.reveal();
    this.weigh();
  }

  /** Ask for tokens after the first `keep` that are shown; resolves when the server has begun. */
  begin(keep, count = Math.max(this.most - keep, 1)) {
    this.stopping?.abort();
    this.steps = this.steps.slice(0, keep);
    this.waiting = [];
    const written = this.steps.map(({ id }) => id);
    const asking = (this.stopping = new AbortController());
    return new Promise((begun) => {
      const body = this.question({ written, max_tokens: count, seed: this.seed + keep });
      const hear = ({ event, data }) => {
        if (asking !== this.stopping) return;
        if (event === "start") {
          [this.caveat, this.prompt] = [data.caveat, data.pieces.slice(0, data.pieces.length - keep)];
          begun();
        } else if (event === "token") this.waiting.push(data);
      };
      this.heard = this.shell.stream("/api/watch", body, hear, { signal: AbortSignal.any([asking.signal, this.shell.signal]) }).catch((error) => this.shell.fail(error)).finally(() => {
        if (asking === this.stopping) this.stopping = null;
        begun();
      });
    });
  }

  reveal(weigh = true) {
    this.steps.push(this.waiting.shift());
    this.at = this.steps.length;
    this.drawLine();
    this.drawStep(this.steps.length - 1);
    if (weigh && !this.timer) this.weigh();
    this.shell.set({ at: this.steps.length });
  }

  drawLine() {
    const chip = (step, at) => element("button", { type: "button", class: "token", "aria-pressed": String(at === this.at), title: `${step.chance.toFixed(3)}`, onclick: () => this.choose(at) }, step.piece);
    const prompt = this.prompt?.length ? this.prompt.map((piece) => element("span", { class: "given" }, piece)) : [element("span", { class: "given" }, this.text)];
    this.line.replaceChildren(...prompt, ...this.steps.map(chip), element("button", { type: "button", class: "token caret", "aria-label": "After the last token", "aria-pressed": String(this.at >= this.steps.length), onclick: () => this.choose(this.steps.length) }, "▮"));
  }

  /** Speak about another token of the text, or about the one to come. */
  choose(at) {
    this.at = Math.min(Math.max(at, 0), this.steps.length);
    this.drawLine();
    this.drawStep(Math.min(this.at, this.steps.length - 1));
    this.weigh();
    if (this.steps[this.at]) this.shell.say(`Token ${this.at + 1}: ${this.steps[this.at].piece}`);
  }

  turn(layer, head) {
    const layers = layersOf(this.steps[0]);
    this.l = Math.min(Math.max(layer, 0), Math.max(layers.length - 1, 0));
    this.h = Math.min(Math.max(head, 0), Math.max((layers[0]?.keys.length ?? 1) - 1, 0));
    this.shell.set({ l: this.l || null, h: this.h || null });
    this.drawStep(Math.min(this.at, this.steps.length - 1));
  }

  drawStep(at) {
    const step = this.steps[at];
    if (!step) return;
    const pieces = [...(this.prompt ?? []), ...this.steps.map(({ piece }) => piece)];
    this.seen.replaceChildren(element("h2", {}, "What it looked at to write ", element("bdi", {}, step.piece)), looked(step, pieces, this.l, this.h, (l, h) => this.turn(l, h), this.caveat ?? ""));
    const layers = layersOf(step).length || 1;
    this.kept.replaceChildren(element("h2", {}, "The cache"), cachePicture(pieces, step, layers), button("Compare with no cache", () => this.saved(true)));
  }

  /** The same tokens read again with and without the cache, counted and timed by the server. */
  async saved(asked = false) {
    if (!this.steps.length || (!asked && this.steps.length < 2)) return;
    try {
      const answer = await this.shell.ask("cache", { model: this.model, text: this.text, written: this.steps.map(({ id }) => id), html: true });
      const drawn = drawing(answer);
      drawn.querySelector("h2")?.remove();
      this.compared.replaceChildren(element("h2", {}, "With and without the cache"), drawn);
    } catch (error) {
      this.shell.fail(error, this.compared);
    }
  }
}
