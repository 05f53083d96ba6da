// Details of one run with the loss curves of others beside it: losses, samples, attention at every checkpoint.

import { formatCount, writeNumber } from "/web/render/numbers.js";
import { bdi, element, field, fieldRow, fill, mainButton, numberInput, quiet, table } from "../element.js";
import { LineChart } from "../linechart.js";
import { AttentionHistory } from "./history.js";
import { formatDuration } from "./jobpanel.js";

const POLL_INTERVAL = 700; // milliseconds between two requests for the metrics of a live run

export class RunView {
	constructor(shell, { onResume }) {
		this.shell = shell;
		this.onResume = onResume;
		this.names = [];
		this.metrics = new Map();
		this.job = null;
		this.title = element("h2");
		this.facts = element("p.quiet");
		this.resumeForm = element("div");
		this.lossChart = new LineChart({ title: "Loss", xAxis: "step", yAxis: "loss" });
		this.comparison = element("div");
		this.samples = element("div");
		this.history = new AttentionHistory(shell);
		this.element = element(
			"section",
			{ "aria-label": "Run", hidden: true },
			this.title,
			this.facts,
			this.resumeForm,
			element(
				"div.sides",
				element(
					"div.card",
					this.lossChart.element,
					quiet(
						"Loss: how surprised the model is by the next token, on average. Lower is better; on validation texts, " +
							"which it never trains on, it shows what was learned and not only memorised.",
					),
					this.comparison,
				),
				element("div.card", element("h2", "Samples"), this.samples),
			),
			this.history.element,
		);
	}

	async show(names, state, job) {
		this.job = job;
		for (const name of [...this.metrics.keys()]) if (!names.includes(name)) this.metrics.delete(name);
		const runChanged = names[0] !== this.names[0];
		this.names = names;
		this.element.hidden = !names.length;
		if (!names.length) return;
		if (runChanged) this.history.clear();
		await this.loadMetrics();
		await this.history.show(names[0], state);
		this.follow(job);
	}

	/** Request the new events of every run; a run that has not started yet has none. */
	async loadMetrics() {
		await Promise.all(
			this.names.map(async (name) => {
				const known = this.metrics.get(name) ?? { events: [], next: 0, samples: [] };
				try {
					const { result } = await this.shell.request("metrics", { name, since: known.next });
					const events = result.since < known.next ? result.events : [...known.events, ...result.events];
					this.metrics.set(name, { events, next: result.next, samples: result.samples, live: result.live });
				} catch (error) {
					if (error.status !== 404 || name === this.names[0]) throw error;
					this.metrics.set(name, { ...known, live: false }); // a link may name deleted runs
				}
			}),
		);
		this.draw();
	}

	follow(job) {
		this.job = job;
		const live =
			[...this.metrics.values()].some((run) => run.live) || (job && job.runs.some((name) => this.names.includes(name)));
		if (!live || this.timer) return;
		this.timer = setTimeout(async () => {
			this.timer = null;
			const numCheckpoints = this.countCheckpoints();
			try {
				await this.loadMetrics();
				if (this.countCheckpoints() !== numCheckpoints) await this.history.update();
			} catch (error) {
				if (error.name === "AbortError") return;
			}
			this.follow(this.job);
		}, POLL_INTERVAL);
	}

	/** The job has ended: load the last metrics and show the table of a comparison. */
	async finish(job) {
		this.job = null;
		await this.loadMetrics().catch(() => {});
		await this.history.update();
		const { result } = job;
		const isShown = job.command === "compare" && result?.models.every(({ run }) => this.names.includes(run));
		fill(this.comparison, isShown && this.comparisonTable(result));
	}

	countCheckpoints() {
		const events = this.metrics.get(this.names[0])?.events ?? [];
		return events.filter(({ event }) => ["saved", "finished"].includes(event)).length;
	}

	comparisonTable({ models, measure, budget, notes }) {
		const names = [...new Set(models.flatMap(({ measures }) => Object.keys(measures)))];
		const rows = models.map(({ kind, parameters, seconds, measures }) => [
			kind,
			formatCount(parameters),
			formatDuration(seconds),
			...names.map((name) => (Number.isFinite(measures[name]) ? writeNumber(measures[name]) : "")),
		]);
		return element(
			"div",
			table(`${budget}; the best on ${measure} first`, ["kind", "parameters", "time", ...names], rows),
			notes.map((note) => quiet(note)),
		);
	}

	draw() {
		const [first] = this.names;
		const main = this.metrics.get(first);
		const losses = (events, kind) => events.filter(({ event }) => event === kind).map(({ step, loss }) => [step, loss]);
		const lines = [{ name: `${first}, training`, points: losses(main.events, "step") }];
		for (const name of this.names)
			lines.push({ name: `${name}, validation`, points: losses(this.metrics.get(name).events, "validated") });
		this.lossChart.show(lines);
		fill(this.title, bdi(first));
		this.facts.textContent = this.summarize(main);
		this.drawResumeForm(first, main);
		this.drawSamples(main.samples);
	}

	summarize({ events, live }) {
		const findLast = (kind) => events.findLast(({ event }) => event === kind);
		const [started, step, validated, finished] = ["started", "step", "validated", "finished"].map(findLast);
		const facts = [
			started && `${formatCount(started.num_parameters)} parameters, seed ${started.seed}`,
			step && `step ${formatCount(step.step)}, loss ${writeNumber(step.loss)}`,
			validated && `validation loss ${writeNumber(validated.loss)}`,
			step && `${formatDuration(step.elapsed_seconds)}, ${formatCount(step.tokens)} tokens`,
			finished ? "finished" : live ? "training" : "stopped",
		];
		return facts.filter(Boolean).join(" · ");
	}

	drawResumeForm(name, { live, events }) {
		const state = live || this.job ? "busy" : events.some(({ event }) => event === "finished") ? "finished" : "stopped";
		if (this.resumeForm.dataset.state === `${name} ${state}`) return;
		this.resumeForm.dataset.state = `${name} ${state}`;
		if (state === "busy") return fill(this.resumeForm);
		const minutes = numberInput(0.05, 1440, { step: "any", placeholder: "unchanged" });
		const resumeButton = mainButton("Resume", () =>
			this.onResume({ run: name, resume: true, ...(minutes.value ? { minutes: Number(minutes.value) } : {}) }),
		);
		const link = element("a", { href: `look?m=${encodeURIComponent(name)}` }, "Inspect its attention");
		fill(this.resumeForm, fieldRow(state === "stopped" && [field("total minutes", minutes), resumeButton], link));
		return undefined;
	}

	drawSamples(samples) {
		const items = [...samples]
			.reverse()
			.flatMap(({ step, prompts, texts }) =>
				prompts.map((prompt, index) =>
					element(
						"li",
						element("small", `after step ${formatCount(step)}`),
						bdi(element("b", prompt), " ▸ ", texts[index]),
					),
				),
			);
		fill(
			this.samples,
			items.length
				? element("ul.samples", items.slice(0, 6))
				: quiet("No samples yet; models that do not generate text have none."),
		);
	}

	close() {
		clearTimeout(this.timer);
		this.history.player.stop();
	}
}
