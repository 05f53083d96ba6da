// Page Train: start, follow, stop and resume runs, and compare kinds of models.

import { writeNumber } from "/web/render/numbers.js";
import { button, details, element, fill, pageHeader, quiet, table } from "../element.js";
import { TrainForm } from "../train/form.js";
import { JobPanel } from "../train/jobpanel.js";
import { RunView } from "../train/run.js";

/** Name of a data set or file; an upload without the number that the server put before it. */
const dataName = (data) => data.replace(/^(.*\/)?([0-9a-f]{8,}-)?/, "");

/** State of a run in the words of this page, whose list is older than the step above it. */
const stateText = (state) => state.replace(/, at step .*/, "").replace("--resume", "Resume");

export class Page {
	constructor(place, shell) {
		this.shell = shell;
		this.runs = [];
		this.jobPanel = new JobPanel(shell, ["train", "compare"], (job) => this.onJobUpdate(job));
		this.form = new TrainForm(shell, (command, body) => this.startJob(command, body));
		this.newRun = details("New run", this.form.element);
		this.list = element("div.list");
		this.runView = new RunView(shell, { onResume: (body) => this.startJob("train", body) });
		place.append(
			...pageHeader(
				"Train",
				"Train a model on this machine; follow its loss, samples and attention. A run can be stopped and resumed.",
			),
			this.newRun,
			this.jobPanel.element,
			this.runView.element,
			element("h2", "Runs"),
			this.list,
		);
		shell.setExports(() => ({ command: "runs", body: { name: this.runView.names[0] } }));
		shell.setCopyItems(() =>
			this.jobPanel.job?.runs.includes(this.names?.[0])
				? [{ label: "Command line", text: this.jobPanel.job.command_line }]
				: [],
		);
		shell.keys.add([
			{ key: " ", label: "Play or pause attention during training", run: () => this.runView.history.play() },
			{ key: "ArrowLeft", label: "Previous checkpoint", run: () => this.runView.history.moveFrame(-1) },
			{ key: "ArrowRight", label: "Next checkpoint", run: () => this.runView.history.moveFrame(1) },
		]);
		shell.onStateChange((next) => this.show(next));
	}

	async start(state) {
		await Promise.all([this.form.load(state), this.loadRuns()]);
		this.newRun.open = !this.runs.length || (!state.run && Boolean(state.kind ?? state.data ?? state.mode));
		const job = await this.jobPanel.load();
		const live =
			job && this.jobPanel.running && job.runs.length ? { run: job.runs[0], with: job.runs.slice(1).join(",") } : {};
		await this.show({ ...live, ...state });
	}

	async loadRuns() {
		this.runs = (await this.shell.request("runs")).result.runs;
		this.drawList();
	}

	async startJob(command, body) {
		if (!(await this.jobPanel.start(command, body))) return;
		this.chooseRuns(this.jobPanel.job.runs);
		this.jobPanel.element.scrollIntoView({ block: "start" });
	}

	/** Show these runs; samples and attention are those of the first. */
	chooseRuns(names) {
		this.shell.setState({ run: names[0], with: names.slice(1).join(","), step: null, place: null }, { push: true });
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
		const isFirst = this.jobPanel.running && this.jobPanel.job.runs.length;
		if (!this.runs.length)
			return fill(this.list, quiet(isFirst ? "The first run is being started." : "No runs yet: start one above."));
		const names = this.names ?? [];
		const rows = this.runs.map(({ name, kind, preset, data, state, validation_loss: loss }) => {
			const box = element("input", {
				type: "checkbox",
				checked: names.includes(name),
				"aria-label": `Show ${name} beside the others`,
				onchange: () => this.chooseRuns(box.checked ? [...names, name] : names.filter((other) => other !== name)),
			});
			return [
				box,
				button(name, () => this.chooseRuns([name]), { class: "text-button" }),
				`${kind} ${preset}`,
				dataName(data),
				stateText(state),
				loss == null ? "" : writeNumber(loss),
			];
		});
		const columns = [element("span.unseen", "shown"), "name", "kind", "data", "state", "validation loss"];
		return fill(
			this.list,
			table(
				null,
				columns,
				rows,
				this.runs.findIndex(({ name }) => name === names[0]),
			),
		);
	}

	close() {
		this.jobPanel.close();
		this.runView.close();
	}
}
