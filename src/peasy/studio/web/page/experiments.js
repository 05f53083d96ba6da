// Experiments: what the documents claim, each with its control, its picture, its verdict and the numbers behind it.

import { drawing } from "../draw.js";
import { button, element } from "../element.js";
import { Job, since } from "../train/job.js";

export const page = { name: "experiments", title: "Experiments", letter: "e" };

export async function open(place, state, shell) {
  const view = new View(place, shell);
  await view.start(state);
  return () => view.close();
}

class View {
  constructor(place, shell) {
    Object.assign(this, { shell });
    this.cards = element("div", { class: "cards" });
    this.detail = element("section", { "aria-label": "Result" });
    this.job = new Job(shell, ["experiment"], (job) => this.heard(job));
    place.append(element("h1", {}, "Experiments"), element("p", { class: "lead" }, "What is said about attention, measured against a control. The verdict is made from the numbers, on this machine; each says what it does not show."), this.cards, this.job.element, this.detail);
    shell.exports(() => (this.result ? { verb: "experiments/last", body: { name: this.name } } : { verb: "experiments", body: {} }));
    shell.copies(() => [{ label: "The numbers as JSON", text: () => JSON.stringify(this.result?.numbers ?? null, null, 2) }]);
    shell.onState((next) => this.show(next));
  }

  async start(state) {
    await this.list();
    await this.show(state);
    await this.job.look();
  }

  async list() {
    const { result } = await this.shell.ask("experiments", {});
    this.all = result.experiments;
    this.drawCards();
  }

  drawCards() {
    this.cards.replaceChildren(...this.all.map((each) => {
      const runs = this.job.running && this.job.job.verb === "experiment" && this.job.job.command.includes(` ${each.name} `);
      const told = each.last
        ? element("p", { class: `verdict ${each.last.holds ? "good" : "bad"}` }, each.last.holds ? "✓ the claim came out" : "✗ the claim did not come out")
        : element("p", { class: "quiet" }, "Not run here yet.");
      return element("article", { class: "card", "aria-current": each.name === this.name ? "true" : null },
        element("h2", {}, each.asks), element("p", { class: "quiet" }, `${each.name} · claims ${each.claims.join(", ")}`), told,
        each.last && element("p", { class: "quiet" }, `Last run ${since(each.last.when)}, seed ${each.last.seed}.`),
        element("div", { class: "row" },
          each.last && button("Show", () => this.choose(each.name), { "aria-label": `Show ${each.name}` }),
          button(runs ? "Running …" : `Run (${each.takes})`, () => this.run(each.name), { disabled: this.job.running, class: each.last ? "plain" : "plain main", "aria-label": `Run ${each.name}` })));
    }));
  }

  async show({ x }) {
    const known = this.all.find(({ name }) => name === x) ?? this.all.find(({ last }) => last);
    this.name = known?.name ?? null;
    this.drawCards();
    if (!known?.last) return this.detail.replaceChildren(...(known ? [element("p", { class: "quiet" }, `${known.name} has not been run here yet.`)] : []));
    try {
      const answer = await this.shell.ask("experiments/last", { name: known.name, html: true });
      if (this.name !== known.name) return undefined;
      this.result = answer.result;
      const numbers = element("details", { class: "more" }, element("summary", {}, "The numbers behind it, as data"), element("pre", { tabindex: 0 }, JSON.stringify(answer.result.numbers, null, 1)));
      this.detail.replaceChildren(element("h2", {}, known.asks), drawing(answer), numbers);
    } catch (error) {
      this.shell.fail(error, this.detail);
    }
    return undefined;
  }

  choose(name) {
    this.shell.set({ x: name }, { push: true });
    return this.show({ x: name });
  }

  async run(name) {
    this.shell.set({ x: name }, { push: true });
    this.name = name;
    await this.job.start("experiments/run", { name });
    this.drawCards();
  }

  /** Told while something runs, and once when it is over. */
  async heard(job) {
    this.drawCards();
    if (job.state === "done" && job.verb === "experiment") {
      await this.list();
      await this.show({ x: this.name });
    }
  }

  close() {
    this.job.close();
  }
}
