// Page Experiments: claims about attention. What do you think? Then the verdict, one picture, and the numbers.

import { renderDocument } from "../document.js";
import { bar, button, details, element, fill, flexRow, mainButton, pageHeader, quiet, table } from "../element.js";
import { JobPanel, formatDuration } from "../train/jobpanel.js";

const GUESSES = { yes: "It holds", no: "It does not" };
const MAX_COMPARED = 6; // comparisons in the picture; the table has all

export class Page {
	/** @type {Record<string, string>} guesses by experiment */
	guesses = {};

	constructor(place, shell) {
		this.shell = shell;
		this.cards = element("div.cards");
		this.detail = element("section", { "aria-label": "Result" });
		this.jobPanel = new JobPanel(shell, ["experiment"], (job) => this.onJobUpdate(job));
		place.append(
			...pageHeader(
				"Experiments",
				"Claims about attention, measured against a control. Say what you expect; then see what was measured.",
			),
			this.jobPanel.element,
			this.detail,
			this.cards,
		);
		shell.setExports(() =>
			this.name ? { command: "experiments/last", body: { name: this.name } } : { command: "experiments", body: {} },
		);
		shell.setCopyItems(() => [
			{ label: "Numbers as JSON", text: () => JSON.stringify(this.result?.numbers ?? this.entry?.stored, null, 2) },
		]);
		shell.onStateChange((next) => this.show(next));
	}

	async start(state) {
		await this.loadExperiments();
		await this.show(state);
		await this.jobPanel.load();
	}

	async loadExperiments() {
		this.experiments = (await this.shell.request("experiments")).result.experiments;
		this.drawCards();
	}

	drawCards() {
		fill(
			this.cards,
			this.experiments.map((entry) =>
				element(
					"article.card",
					{ "aria-current": entry.name === this.name || null },
					element("h2", entry.claim),
					quiet(entry.question),
					this.guesses[entry.name] && verdictLine(entry.last ?? entry.stored),
					flexRow(this.cardControls(entry)),
				),
			),
		);
	}

	/** What do you think? Only then the result; an experiment without one can be run. */
	cardControls(entry) {
		const { name, claim, last, stored } = entry;
		const { running } = this.jobPanel;
		if (!last && !stored)
			return mainButton(`Measure it (${durationOf(entry)})`, () => this.run(name), {
				disabled: running,
				"aria-label": `Run ${name}`,
			});
		if (this.guesses[name]) return button("Show", () => this.choose(name), { "aria-label": `Show ${name}` });
		return [
			element("span.quiet", "What do you think?"),
			...Object.entries(GUESSES).map(([guess, label]) =>
				button(label, () => this.guess(name, guess), { "aria-label": `${label}: ${claim}` }),
			),
		];
	}

	guess(name, guess) {
		this.guesses[name] = guess;
		return this.choose(name);
	}

	async show({ x }) {
		this.entry = this.experiments.find(({ name }) => name === x) ?? null;
		this.name = this.entry?.name ?? null;
		this.result = null;
		this.drawCards();
		if (!this.entry) return fill(this.detail);
		const { name, last } = this.entry;
		const duration = durationOf(this.entry);
		return this.shell.attempt(async () => {
			const response = last && (await this.shell.request("experiments/last", { name, html: true }));
			if (this.name !== name) return;
			this.result = response?.result ?? null;
			fill(this.detail, this.resultParts(response));
			this.detail.append(
				flexRow(
					button(last ? `Run again (${duration})` : `Measure it here (${duration})`, () => this.run(name), {
						disabled: this.jobPanel.running,
						"aria-label": `Run ${name}`,
					}),
					button("All claims", () => this.choose(null)),
				),
			);
		}, this.detail);
	}

	/** Verdict on top, one picture, the caveat; everything else is folded. */
	resultParts(response) {
		const { claim, caveat, last, stored, labels } = this.entry;
		const guess = this.guesses[this.name];
		const shown = response && renderDocument(response);
		const picture = stored?.comparisons?.length ? comparisonBars(stored, labels) : takePicture(shown);
		return [
			element("h2", { tabindex: -1 }, claim),
			verdictLine(last ?? stored) ?? quiet("Not measured on this machine yet."),
			guess && quiet(`You said: ${GUESSES[guess].toLowerCase()}.`),
			last && element("p", last.verdict),
			picture,
			caveat && element("p.note", element("b", "Caveat: "), caveat),
			stored &&
				details(
					"Measured with several seeds",
					quiet(stored.origin),
					table(null, stored.table.columns, stored.table.rows),
				),
			shown && details(`Last run on this machine: ${writeTime(last.time)}, seed ${last.seed}`, shown),
		];
	}

	async choose(name) {
		this.shell.setState({ x: name }, { push: true });
		await this.show({ x: name });
		const heading = this.detail.querySelector("h2");
		heading?.focus();
		heading?.scrollIntoView({ block: "nearest" });
	}

	async run(name) {
		this.shell.setState({ x: name }, { push: true });
		this.name = name;
		await this.jobPanel.start("experiments/run", { name });
		this.drawCards();
	}

	/** Called while a job runs, and once when it ends. */
	async onJobUpdate(job) {
		if (job.state === "done" && job.command === "experiment" && this.doneJob !== job.id) {
			this.doneJob = job.id;
			await this.loadExperiments();
			if (this.name) await this.choose(this.name);
		} else this.drawCards();
	}

	close() {
		this.jobPanel.close();
	}
}

/** How long one run takes: measured, where results are stored. */
function durationOf({ duration, stored }) {
	return stored?.seconds ? `about ${formatDuration(stored.seconds / stored.seeds.length)}` : duration;
}

const writeTime = (seconds) =>
	new Date(1000 * seconds).toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });

function verdictLine(measured) {
	if (!measured) return null;
	const isGood = measured.holds ?? measured.outcome.startsWith("supported");
	return element(
		"p",
		{ class: `verdict ${isGood ? "good" : "bad"}` },
		`${isGood ? "✓" : "✗"} ${measured.outcome[0].toUpperCase()}${measured.outcome.slice(1)}`,
	);
}

/** The first figure of a document, taken out of it. */
function takePicture(shown) {
	const picture = shown?.querySelector("figure.picture, div.figure") ?? shown?.querySelector("figure");
	picture?.remove();
	return picture ?? null;
}

/** Means of each comparison and of its control, as bars, with the interval of their seeds. */
function comparisonBars({ comparisons, seeds }, labels) {
	const items = comparisons.slice(0, MAX_COMPARED).flatMap((one) => {
		const largest = Math.max(Math.abs(one.value.mean), Math.abs(one.control.mean), 1e-12);
		const line = (name, { mean, low, high }, kind) =>
			element(
				"li",
				element("span", labels[name] ?? name),
				bar(Math.abs(mean) / largest, kind),
				element("span.number", { title: `${low} to ${high}` }, String(Number(mean.toPrecision(3)))),
			);
		return [
			element("li.bar-title", one.name, one.lower && element("span.quiet", " (less is better)")),
			line(one.value_name, one.value, null),
			line(one.control_name, one.control, "was"),
		];
	});
	return element("figure.bars.compared", element("figcaption", `Mean of ${seeds.length} seeds`), element("ol", items));
}
