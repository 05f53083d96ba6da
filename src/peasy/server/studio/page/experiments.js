// Page Experiments: claims about attention, each with its control, figure, verdict and numbers.

import { renderDocument } from "../document.js";
import { button, details, element, flexRow, pageHeader, quiet } from "../element.js";
import { JobPanel, formatTimeAgo } from "../train/jobpanel.js";

export const page = { name: "experiments", title: "Experiments", letter: "e" };

export class Page {
	constructor(place, shell) {
		this.shell = shell;
		this.cards = element("div", { class: "cards" });
		this.detail = element("section", { "aria-label": "Result" });
		this.jobPanel = new JobPanel(shell, ["experiment"], (job) => this.onJobUpdate(job));
		place.append(
			...pageHeader(
				"Experiments",
				"Claims about attention, measured against a control. The verdict is computed from the numbers on this " +
					"machine; each experiment states its limits.",
			),
			this.cards,
			this.jobPanel.element,
			this.detail,
		);
		shell.setExports(() =>
			this.result ? { command: "experiments/last", body: { name: this.name } } : { command: "experiments", body: {} },
		);
		shell.setCopyItems(() => [
			{ label: "Numbers as JSON", text: () => JSON.stringify(this.result?.numbers ?? null, null, 2) },
		]);
		shell.onStateChange((next) => this.show(next));
	}

	async start(state) {
		await this.loadExperiments();
		await this.show(state);
		await this.jobPanel.load();
	}

	async loadExperiments() {
		const { result } = await this.shell.request("experiments");
		this.experiments = result.experiments;
		this.drawCards();
	}

	drawCards() {
		const { running, job } = this.jobPanel;
		this.cards.replaceChildren(
			...this.experiments.map(({ name, question, duration, last }) => {
				const isRunning = running && job.command_line.startsWith(`peasy experiment ${name} `);
				const verdict = last
					? element(
							"p",
							{ class: `verdict ${last.holds ? "good" : "bad"}` },
							`${last.holds ? "✓" : "✗"} ${last.outcome}`,
						)
					: quiet("Not run yet.");
				return element(
					"article",
					{ class: "card", "aria-current": name === this.name || null },
					element("h2", {}, question),
					quiet(name),
					verdict,
					last && quiet(`Last run ${formatTimeAgo(last.time)}, seed ${last.seed}.`),
					flexRow(
						last && button("Show", () => this.choose(name), { "aria-label": `Show ${name}` }),
						button(isRunning ? "Running …" : `Run (${duration})`, () => this.run(name), {
							disabled: running,
							class: last ? "plain" : "plain main",
							"aria-label": `Run ${name}`,
						}),
					),
				);
			}),
		);
	}

	async show({ x }) {
		const experiment = this.experiments.find(({ name }) => name === x) ?? this.experiments.find(({ last }) => last);
		this.name = experiment?.name ?? null;
		this.drawCards();
		if (!experiment?.last)
			return this.detail.replaceChildren(experiment ? quiet(`${experiment.name} has not been run yet.`) : "");
		return this.shell.attempt(async () => {
			const response = await this.shell.request("experiments/last", { name: experiment.name, html: true });
			if (this.name !== experiment.name) return;
			this.result = response.result;
			const numbers = details(
				"All numbers as JSON",
				element("pre", { tabindex: 0 }, JSON.stringify(response.result.numbers, null, 1)),
			);
			this.detail.replaceChildren(element("h2", {}, experiment.question), renderDocument(response), numbers);
		}, this.detail);
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
		if (job.state === "done" && job.command === "experiment") {
			await this.loadExperiments();
			await this.show({ x: this.name });
		}
	}

	close() {
		this.jobPanel.close();
	}
}
