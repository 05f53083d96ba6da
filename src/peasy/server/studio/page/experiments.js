// Page Experiments: claims about attention, each with its control, figure, verdict and numbers.

import { renderDocument } from "../document.js";
import { button, element } from "../element.js";
import { JobPanel, formatTimeAgo } from "../train/jobpanel.js";

export const page = { name: "experiments", title: "Experiments", letter: "e" };

export async function open(place, state, shell) {
  const experimentsPage = new ExperimentsPage(place, shell);
  await experimentsPage.start(state);
  return () => experimentsPage.close();
}

class ExperimentsPage {
  constructor(place, shell) {
    Object.assign(this, { shell });
    this.cards = element("div", { class: "cards" });
    this.detail = element("section", { "aria-label": "Result" });
    this.jobPanel = new JobPanel(shell, ["experiment"], (job) => this.onJobUpdate(job));
    place.append(element("h1", {}, "Experiments"), element("p", { class: "lead" }, "Claims about attention, measured against a control. The verdict is computed from the numbers on this machine; each experiment states its limits."), this.cards, this.jobPanel.element, this.detail);
    shell.setExports(() => (this.result ? { command: "experiments/last", body: { name: this.name } } : { command: "experiments", body: {} }));
    shell.setCopyItems(() => [{ label: "Numbers as JSON", text: () => JSON.stringify(this.result?.numbers ?? null, null, 2) }]);
    shell.onStateChange((next) => this.show(next));
  }

  async start(state) {
    await this.loadExperiments();
    await this.show(state);
    await this.jobPanel.load();
  }

  async loadExperiments() {
    const { result } = await this.shell.request("experiments", {});
    this.experiments = result.experiments;
    this.drawCards();
  }

  drawCards() {
    this.cards.replaceChildren(...this.experiments.map((experiment) => {
      const { running, job } = this.jobPanel;
      const isRunning = running && job.verb === "experiment" && job.command.includes(` ${experiment.name} `);
      const verdict = experiment.last
        ? element("p", { class: `verdict ${experiment.last.holds ? "good" : "bad"}` }, experiment.last.holds ? "✓ the claim holds" : "✗ the claim does not hold")
        : element("p", { class: "quiet" }, "Not run yet.");
      return element("article", { class: "card", "aria-current": experiment.name === this.name ? "true" : null },
        element("h2", {}, experiment.asks), element("p", { class: "quiet" }, `${experiment.name} · claims ${experiment.claims.join(", ")}`), verdict,
        experiment.last && element("p", { class: "quiet" }, `Last run ${formatTimeAgo(experiment.last.when)}, seed ${experiment.last.seed}.`),
        element("div", { class: "row" },
          experiment.last && button("Show", () => this.choose(experiment.name), { "aria-label": `Show ${experiment.name}` }),
          button(isRunning ? "Running …" : `Run (${experiment.takes})`, () => this.run(experiment.name), { disabled: running, class: experiment.last ? "plain" : "plain main", "aria-label": `Run ${experiment.name}` })));
    }));
  }

  async show({ x }) {
    const experiment = this.experiments.find(({ name }) => name === x) ?? this.experiments.find(({ last }) => last);
    this.name = experiment?.name ?? null;
    this.drawCards();
    if (!experiment?.last) return this.detail.replaceChildren(...(experiment ? [element("p", { class: "quiet" }, `${experiment.name} has not been run yet.`)] : []));
    try {
      const response = await this.shell.request("experiments/last", { name: experiment.name, html: true });
      if (this.name !== experiment.name) return undefined;
      this.result = response.result;
      const numbers = element("details", { class: "more" }, element("summary", {}, "All numbers as JSON"), element("pre", { tabindex: 0 }, JSON.stringify(response.result.numbers, null, 1)));
      this.detail.replaceChildren(element("h2", {}, experiment.asks), renderDocument(response), numbers);
    } catch (error) {
      this.shell.showError(error, this.detail);
    }
    return undefined;
  }

  choose(name) {
    this.shell.setState({ x: name }, { push: true });
    return this.show({ x: name });
  }

  async run(name) {
    this.shell.setState({ x: name }, { push: true });
    this.name = name;
    await this.jobPanel.start("experiments/run", { name });
    this.drawCards();
  }

  /** Called while a job runs, and once when it ends. */
  async onJobUpdate(job) {
    this.drawCards();
    if (job.state === "done" && job.verb === "experiment") {
      await this.loadExperiments();
      await this.show({ x: this.name });
    }
  }

  close() {
    this.jobPanel.close();
  }
}
