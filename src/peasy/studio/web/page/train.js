// Train: begin a run, watch it learn, stop it, go on with it, and set kinds beside each other.

import { button, element } from "../element.js";
import { Form } from "../train/form.js";
import { Job } from "../train/job.js";
import { RunView } from "../train/run.js";

export const page = { name: "train", title: "Train", letter: "r" };

export async function open(place, state, shell) {
  const view = new View(place, shell);
  await view.start(state);
  return () => view.close();
}

class View {
  constructor(place, shell) {
    Object.assign(this, { shell, runs: [] });
    this.job = new Job(shell, ["train", "compare"], (job) => this.heard(job));
    this.form = new Form(shell, (verb, body) => this.begin(verb, body));
    this.list = element("div", { class: "list" });
    this.run = new RunView(shell, { resume: (body) => this.begin("train", body) });
    place.append(element("h1", {}, "Train"), element("p", { class: "lead" }, "A model learns from text on this machine: minutes, not hours. Watch its loss fall, what it writes, and how its attention forms. Stopping saves; every run can go on."),
      this.form.element, this.job.element, element("h2", {}, "Runs"), this.list, this.run.element);
    shell.exports(() => ({ verb: "runs", body: this.run.names.length ? { name: this.run.names[0] } : {} }));
    shell.copies(() => (this.job.job ? [{ label: "The command", text: this.job.job.command }] : []));
    shell.keys.here([
      { key: " ", says: "Play or pause the film of attention", run: () => this.run.film.play() },
      { key: "ArrowLeft", says: "Checkpoint before", run: () => this.run.film.step(-1) },
      { key: "ArrowRight", says: "Next checkpoint", run: () => this.run.film.step(1) },
    ]);
    shell.onState((next) => this.show(next));
  }

  async start(state) {
    await Promise.all([this.form.furnish(state), this.load()]);
    const job = await this.job.look();
    const live = job && this.job.running && job.runs.length ? { run: job.runs[0], with: job.runs.slice(1).join(",") } : {};
    await this.show({ ...live, ...state });
  }

  async load() {
    this.runs = (await this.shell.ask("runs", {})).result.runs;
    this.drawList();
  }

  async begin(verb, body) {
    if (!(await this.job.start(verb, body))) return;
    const { runs } = this.job.job;
    this.choose(runs);
  }

  /** A run and others beside it; the first is the one whose samples and attention are shown. */
  choose(names) {
    this.shell.set({ run: names[0] ?? null, with: names.slice(1).join(",") || null, step: null, place: null }, { push: true });
    return this.show(this.shell.state);
  }

  async show(state) {
    const others = (state.with ?? "").split(",").filter(Boolean);
    const first = state.run ?? this.runs[0]?.name;
    this.names = first ? [first, ...others.filter((name) => name !== first)] : [];
    this.drawList();
    await this.run.show(this.names, state, this.job.running ? this.job.job : null);
  }

  async heard(job) {
    this.form.busy(this.job.running);
    const known = this.runs.map(({ name }) => name);
    if (!this.job.running || job.runs.some((name) => !known.includes(name))) await this.load().catch(() => {});
    if (this.names) this.run.follow(this.job.running ? job : null);
    if (!this.job.running) this.run.finish(job);
  }

  drawList() {
    if (!this.runs.length) return this.list.replaceChildren(element("p", { class: "quiet" }, "No runs yet: begin one above."));
    const shown = new Set(this.names ?? []);
    const body = this.runs.map((run) => {
      const box = element("input", { type: "checkbox", checked: shown.has(run.name), "aria-label": `Show ${run.name} beside the others` });
      box.addEventListener("change", () => this.choose(box.checked ? [...(this.names ?? []), run.name] : this.names.filter((name) => name !== run.name)));
      return element("tr", { "aria-current": this.names?.[0] === run.name ? "true" : null },
        element("td", {}, box), element("td", { class: "word" }, button(run.name, () => this.choose([run.name]), { class: "linkish" })),
        [`${run.kind} ${run.preset}`, run.data.split("/").at(-1), run.state].map((cell) => element("td", { class: "word" }, element("bdi", {}, cell))),
        element("td", {}, run.valid === null ? "" : run.valid.toFixed(4)));
    });
    const head = ["", "name", "kind", "data", "state", "validation loss"].map((name) => (name ? element("th", { scope: "col" }, name) : element("td", {}, element("span", { class: "unseen" }, "shown"))));
    return this.list.replaceChildren(element("figure", { class: "table", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body))));
  }

  close() {
    this.job.close();
    this.run.close();
  }
}
