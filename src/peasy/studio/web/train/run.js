// One run in full, and the curves of others beside it: loss, samples, attention at every checkpoint.

import { Curves } from "../curves.js";
import { button, element, field, table } from "../element.js";
import { Film } from "./film.js";
import { clock } from "./job.js";

const PAUSE = 700; // milliseconds between two questions about a run that learns

export class RunView {
  constructor(shell, { resume }) {
    Object.assign(this, { shell, resume, names: [], heard: new Map(), job: null });
    this.title = element("h2", {});
    this.facts = element("p", { class: "quiet" });
    this.again = element("div", {});
    this.curves = new Curves({ title: "Loss", xAxis: "step", yAxis: "loss" });
    this.compared = element("div", {});
    this.samples = element("div", {});
    this.film = new Film(shell);
    this.element = element("section", { "aria-label": "Run", hidden: true }, this.title, this.facts, this.again,
      element("div", { class: "sides" }, element("div", { class: "card" }, this.curves.element, this.compared), element("div", { class: "card" }, element("h3", {}, "What it writes"), this.samples)), this.film.element);
  }

  async show(names, state, job) {
    this.job = job;
    for (const name of [...this.heard.keys()]) if (!names.includes(name)) this.heard.delete(name);
    const other = names[0] !== this.names[0];
    this.names = names;
    this.element.hidden = !names.length;
    if (!names.length) return;
    if (other) this.film.forget();
    await this.ask();
    await this.film.show(names[0], state);
    this.follow(job);
  }

  /** Every run is asked for what is new since the last time; one that is not there yet has said nothing. */
  async ask() {
    await Promise.all(this.names.map(async (name) => {
      const known = this.heard.get(name) ?? { events: [], next: 0, samples: [] };
      try {
        const { result } = await this.shell.ask("metrics", { name, since: known.next });
        const events = result.since < known.next ? result.events : [...known.events, ...result.events];
        this.heard.set(name, { events, next: result.next, samples: result.samples, live: result.live });
      } catch (error) {
        if (error.status !== 404 || name === this.names[0]) throw error;
        this.heard.set(name, { ...known, live: false }); // a link may name runs that are gone
      }
    }));
    this.draw();
  }

  follow(job) {
    this.job = job;
    const live = [...this.heard.values()].some((run) => run.live) || (job && job.runs.some((name) => this.names.includes(name)));
    if (!live || this.timer) return;
    this.timer = setTimeout(async () => {
      this.timer = null;
      const before = this.saved();
      try {
        await this.ask();
        if (this.saved() !== before) await this.film.news();
      } catch (error) {
        if (error.name === "AbortError") return;
      }
      this.follow(this.job);
    }, PAUSE);
  }

  /** The work is over: what it said last is asked for once more, and a comparison has its table. */
  async finish(job) {
    this.job = null;
    await this.ask().catch(() => {});
    await this.film.news();
    const { result } = job;
    const fits = job.verb === "compare" && result && result.contenders.every(({ run }) => this.names.includes(run));
    this.compared.replaceChildren(...(fits ? [this.ranking(result)] : []));
  }

  saved() {
    return this.heard.get(this.names[0])?.events.filter(({ event }) => event === "saved" || event === "finished").length ?? 0;
  }

  ranking({ contenders, measure, budget, notes }) {
    const names = [...new Set(contenders.flatMap(({ measures }) => Object.keys(measures)))];
    const rows = contenders.map((each) => [each.kind, each.parameters.toLocaleString("en"), clock(each.seconds), ...names.map((name) => (each.measures[name] === undefined ? "" : each.measures[name].toFixed(4)))]);
    return element("div", {}, table(`${budget}; the best on ${measure} first`, ["kind", "parameters", "time", ...names], rows), notes.map((note) => element("p", { class: "quiet" }, note)));
  }

  draw() {
    const [first] = this.names;
    const main = this.heard.get(first);
    const of = (events, kind) => events.filter(({ event }) => event === kind).map(({ step, loss }) => [step, loss]);
    const lines = [{ name: `${first}, training`, points: of(main.events, "step") }];
    for (const name of this.names) lines.push({ name: `${name}, validation`, points: of(this.heard.get(name).events, "validated") });
    this.curves.show(lines);
    this.title.replaceChildren(element("bdi", {}, first));
    this.facts.textContent = this.told(main);
    this.drawAgain(first, main);
    this.drawSamples(main.samples);
  }

  told({ events, live }) {
    const find = (kind) => events.findLast(({ event }) => event === kind);
    const [started, step, checked, ended] = ["started", "step", "validated", "finished"].map(find);
    const said = [started && `${started.parameters.toLocaleString("en")} parameters, seed ${started.seed}`, step && `step ${step.step.toLocaleString("en")}, loss ${step.loss.toFixed(4)}`,
      checked && `validation loss ${checked.loss.toFixed(4)}`, step && `${clock(step.elapsed)}, ${step.tokens.toLocaleString("en")} tokens`, ended ? "finished" : live ? "learning now" : "stopped"];
    return said.filter(Boolean).join(" · ");
  }

  drawAgain(name, { live, events }) {
    const state = live || this.job ? "busy" : events.some(({ event }) => event === "finished") ? "finished" : "stopped";
    if (this.again.dataset.state === `${name} ${state}`) return;
    this.again.dataset.state = `${name} ${state}`;
    if (state === "busy") return this.again.replaceChildren();
    const minutes = element("input", { type: "number", min: 0.05, max: 1440, step: "any", placeholder: "as begun" });
    const go = button("Go on", () => this.resume({ run: name, resume: true, ...(minutes.value ? { minutes: Number(minutes.value) } : {}) }), { class: "plain main" });
    const look = element("a", { href: `/look?m=${encodeURIComponent(name)}` }, "Look into it");
    this.again.replaceChildren(element("div", { class: "row end" }, state === "stopped" && field("minutes in all", minutes), state === "stopped" && go, look));
    return undefined;
  }

  drawSamples(samples) {
    const listed = [...samples].reverse().flatMap(({ step, prompts, texts }) => prompts.map((prompt, at) => element("li", {}, element("small", {}, `after step ${step.toLocaleString("en")}`), element("bdi", {}, element("b", {}, prompt), " ▸ ", texts[at]))));
    this.samples.replaceChildren(listed.length ? element("ul", { class: "samples" }, listed.slice(0, 6)) : element("p", { class: "quiet" }, "Nothing yet; models that do not write have no samples."));
  }

  close() {
    clearTimeout(this.timer);
    this.film.close();
  }
}
