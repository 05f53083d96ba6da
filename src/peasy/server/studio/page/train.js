// Page Train: start, follow, stop and resume runs, and compare kinds of models.

import { button, element } from "../element.js";
import { TrainForm } from "../train/form.js";
import { JobPanel } from "../train/jobpanel.js";
import { RunView } from "../train/run.js";

export const page = { name: "train", title: "Train", letter: "r" };

export async function open(place, state, shell) {
  const trainPage = new TrainPage(place, shell);
  await trainPage.start(state);
  return () => trainPage.close();
}

class TrainPage {
  constructor(place, shell) {
    Object.assign(this, { shell, runs: [] });
    this.jobPanel = new JobPanel(shell, ["train", "compare"], (job) => this.onJobUpdate(job));
    this.form = new TrainForm(shell, (command, body) => this.startJob(command, body));
    this.list = element("div", { class: "list" });
    this.runView = new RunView(shell, { onResume: (body) => this.startJob("train", body) });
    place.append(element("h1", {}, "Train"), element("p", { class: "lead" }, "Train a model on text on this machine, in minutes. Follow its loss, its samples and its attention. Stopping saves the run, and every run can be resumed."),
      this.form.element, this.jobPanel.element, element("h2", {}, "Runs"), this.list, this.runView.element);
    shell.setExports(() => ({ command: "runs", body: this.runView.names.length ? { name: this.runView.names[0] } : {} }));
    shell.setCopyItems(() => (this.jobPanel.job ? [{ label: "Command line", text: this.jobPanel.job.command }] : []));
    shell.keys.addPageKeys([
      { key: " ", label: "Play or pause attention during training", run: () => this.runView.film.play() },
      { key: "ArrowLeft", label: "Previous checkpoint", run: () => this.runView.film.moveFrame(-1) },
      { key: "ArrowRight", label: "Next checkpoint", run: () => this.runView.film.moveFrame(1) },
    ]);
    shell.onStateChange((next) => this.show(next));
  }

  async start(state) {
    await Promise.all([this.form.load(state), this.loadRuns()]);
    const job = await this.jobPanel.load();
    const live = job && this.jobPanel.running && job.runs.length ? { run: job.runs[0], with: job.runs.slice(1).join(",") } : {};
    await this.show({ ...live, ...state });
  }

  async loadRuns() {
    this.runs = (await this.shell.request("runs", {})).result.runs;
    this.drawList();
  }

  async startJob(command, body) {
    if (!(await this.jobPanel.start(command, body))) return;
    this.chooseRuns(this.jobPanel.job.runs);
  }

  /** Show these runs; samples and attention are those of the first. */
  chooseRuns(names) {
    this.shell.setState({ run: names[0] ?? null, with: names.slice(1).join(",") || null, step: null, place: null }, { push: true });
    return this.show(this.shell.state);
  }

  async show(state) {
    const others = (state.with ?? "").split(",").filter(Boolean);
    const first = state.run ?? this.runs[0]?.name;
    this.names = first ? [first, ...others.filter((name) => name !== first)] : [];
    this.drawList();
    await this.runView.show(this.names, state, this.jobPanel.running ? this.jobPanel.job : null);
  }

  async onJobUpdate(job) {
    this.form.setBusy(this.jobPanel.running);
    const known = this.runs.map(({ name }) => name);
    if (!this.jobPanel.running || job.runs.some((name) => !known.includes(name))) await this.loadRuns().catch(() => {});
    if (this.names) this.runView.follow(this.jobPanel.running ? job : null);
    if (!this.jobPanel.running) this.runView.finish(job);
  }

  drawList() {
    if (!this.runs.length) return this.list.replaceChildren(element("p", { class: "quiet" }, "No runs yet: start one above."));
    const shown = new Set(this.names ?? []);
    const body = this.runs.map((run) => {
      const box = element("input", { type: "checkbox", checked: shown.has(run.name), "aria-label": `Show ${run.name} beside the others` });
      box.addEventListener("change", () => this.chooseRuns(box.checked ? [...(this.names ?? []), run.name] : this.names.filter((name) => name !== run.name)));
      return element("tr", { "aria-current": this.names?.[0] === run.name ? "true" : null },
        element("td", {}, box), element("td", { class: "word" }, button(run.name, () => this.chooseRuns([run.name]), { class: "text-button" })),
        [`${run.kind} ${run.preset}`, run.data.split("/").at(-1), run.state].map((cell) => element("td", { class: "word" }, element("bdi", {}, cell))),
        element("td", {}, run.valid === null ? "" : run.valid.toFixed(4)));
    });
    const head = ["", "name", "kind", "data", "state", "validation loss"].map((name) => (name ? element("th", { scope: "col" }, name) : element("td", {}, element("span", { class: "unseen" }, "shown"))));
    return this.list.replaceChildren(element("figure", { class: "table", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body))));
  }

  close() {
    this.jobPanel.close();
    this.runView.close();
  }
}
