// Panel of the server's background job: progress, stop button, errors; found again after a reload.

import { formatCount, writeNumber } from "/web/render/numbers.js";
import { ApiError } from "../api.js";
import { button, element, fill, flexRow } from "../element.js";

const POLL_INTERVAL = 600; // milliseconds
const STATE_TEXTS = {
	running: "is running",
	stopping: "is being saved",
	done: "is done",
	stopped: "was stopped and saved",
	failed: "failed",
};

export class JobPanel {
	/** `onUpdate(job)` is called at every update and at the end; jobs of other `commands` are shown only while running. */
	constructor(shell, commands, onUpdate) {
		this.shell = shell;
		this.commands = commands;
		this.onUpdate = onUpdate;
		this.job = null;
		this.stateLine = element("p");
		this.progressText = element("p.quiet");
		this.progressBar = element("i");
		this.progress = element("div.progress", { "aria-hidden": true }, this.progressBar);
		this.stopButton = button("Stop and save", () => this.stop());
		this.errorContainer = element("div");
		this.element = element(
			"section.card.live",
			{ "aria-label": "Job", hidden: true },
			this.stateLine,
			this.progress,
			this.progressText,
			this.errorContainer,
			flexRow(this.stopButton),
		);
	}

	get running() {
		return this.job !== null && ["running", "stopping"].includes(this.job.state);
	}

	async start(command, body) {
		this.shell.clearError();
		const started = await this.shell.attempt(async () => {
			await this.fetchJob(command, body);
			this.poll();
			return true;
		});
		if (!started) await this.load().catch(() => {}); // another job may run
		return Boolean(started);
	}

	/** Show a job that is already running, or the last one. */
	async load() {
		await this.fetchJob("job");
		if (this.running) this.poll();
		return this.job;
	}

	/** Send a command that returns the job, and show it if there is one. */
	async fetchJob(command, body) {
		const { job } = (await this.shell.request(command, body)).result;
		if (job) this.show(job);
	}

	poll() {
		clearTimeout(this.timer);
		this.timer = setTimeout(async () => {
			try {
				await this.fetchJob("job");
			} catch (error) {
				if (error.name === "AbortError") return;
				this.shell.showError(error);
			}
			if (this.running) this.poll();
		}, POLL_INTERVAL);
	}

	stop() {
		return this.shell.attempt(() => this.fetchJob("job/stop"));
	}

	show(job) {
		const previous = this.job;
		this.job = job;
		this.element.hidden = !this.running && !this.commands.includes(job.command);
		const duration = this.running ? ` (${formatDuration(job.seconds)})` : "";
		this.stateLine.textContent = `${job.description} ${STATE_TEXTS[job.state]}${duration}.`;
		this.showProgress(job);
		this.stopButton.hidden = !this.running;
		this.stopButton.textContent = job.state === "stopping" ? "Terminate now" : "Stop and save";
		if (job.state === "failed")
			this.shell.showError(
				new ApiError(job.error?.message ?? "The job failed.", job.error?.hint ?? ""),
				this.errorContainer,
			);
		else fill(this.errorContainer);
		if (previous?.id !== job.id || previous.state !== job.state) this.shell.announce(this.stateLine.textContent);
		if (previous?.state !== job.state || this.running) this.onUpdate(job);
	}

	showProgress({ last_step: last, log, command }) {
		const total = last ? last.elapsed_seconds + last.eta_seconds : 0;
		const fraction = total > 0 ? last.elapsed_seconds / total : null;
		this.progress.hidden = fraction === null || !this.running;
		if (fraction !== null) this.progressBar.style.width = `${100 * fraction}%`;
		const stepText =
			last &&
			`${last.kind ? `${last.kind} · ` : ""}step ${formatCount(last.step)} · loss ${writeNumber(last.loss)} · ` +
				`${formatCount(Math.round(last.tokens_per_second))} tokens/s · ${formatDuration(last.eta_seconds)} left`;
		const text = stepText ?? log.at(-1) ?? (command === "experiment" ? "" : "The data are being tokenized.");
		this.progressText.textContent = this.running ? text : "";
	}

	close() {
		clearTimeout(this.timer);
	}
}

/** Seconds as text: "3 min 20 s". */
export function formatDuration(seconds) {
	const whole = Math.round(seconds);
	if (whole < 60) return `${whole} s`;
	return whole < 3600
		? `${Math.floor(whole / 60)} min ${whole % 60} s`
		: `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
