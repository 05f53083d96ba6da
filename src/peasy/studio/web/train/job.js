// What goes on in the server's workshop: one piece of work at a time, found again after a reload.

import { button, element } from "../element.js";

const PAUSE = 600; // milliseconds between two questions
const WORDS = { running: "goes on", stopping: "is being saved", done: "is done", stopped: "was stopped and saved", failed: "failed" };

export class Job {
  /** `heard(job)` is called at every news, also once when it is over; work of other `verbs` is shown while it goes on. */
  constructor(shell, verbs, heard) {
    Object.assign(this, { shell, verbs, heard });
    this.job = null;
    this.line = element("p", {});
    this.said = element("p", { class: "quiet" });
    this.bar = element("i", {});
    this.progress = element("div", { class: "progress", "aria-hidden": "true" }, this.bar);
    this.stopper = button("Stop and save", () => this.stop());
    this.error = element("div", {});
    this.element = element("section", { class: "card live", "aria-label": "What goes on", hidden: true }, this.line, this.progress, this.said, this.error, element("div", { class: "row" }, this.stopper));
  }

  get running() {
    return this.job !== null && ["running", "stopping"].includes(this.job.state);
  }

  async start(verb, body) {
    try {
      this.shell.well();
      this.show((await this.shell.ask(verb, body)).result.job);
      this.follow();
      return true;
    } catch (error) {
      this.shell.fail(error);
      await this.look();
      return false;
    }
  }

  /** Find what goes on already. */
  async look() {
    const { job } = (await this.shell.ask("job", {})).result;
    if (!job) return null;
    this.show(job);
    if (this.running) this.follow();
    return job;
  }

  follow() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      try {
        this.show((await this.shell.ask("job", {})).result.job);
      } catch (error) {
        if (error.name === "AbortError") return;
        this.shell.fail(error);
      }
      if (this.running) this.follow();
    }, PAUSE);
  }

  async stop() {
    try {
      this.show((await this.shell.ask("job/stop", {})).result.job);
    } catch (error) {
      this.shell.fail(error);
    }
  }

  show(job) {
    const before = this.job;
    this.job = job;
    const { last } = job;
    this.element.hidden = !this.running && !this.verbs.includes(job.verb);
    this.line.textContent = `${job.about} ${WORDS[job.state]}${this.running ? `, since ${clock(job.seconds)}` : ""}.`;
    const share = last && last.elapsed + last.left > 0 ? last.elapsed / (last.elapsed + last.left) : null;
    this.progress.hidden = share === null || !this.running;
    if (share !== null) this.bar.style.width = `${100 * share}%`;
    const news = last ? `step ${last.step.toLocaleString("en")} · loss ${last.loss.toFixed(4)} · ${Math.round(last.rate).toLocaleString("en")} tokens/s · ${clock(last.left)} left` : job.said.at(-1) ?? (job.verb === "experiment" ? "" : "The data are read and cut into tokens.");
    this.said.textContent = this.running ? news : "";
    this.stopper.hidden = !this.running;
    this.stopper.textContent = job.state === "stopping" ? "End at once" : "Stop and save";
    if (job.state === "failed") this.shell.fail(Object.assign(new Error(job.error?.message ?? "It failed."), { hint: job.error?.hint ?? "" }), this.error);
    else this.error.replaceChildren();
    if (before?.id !== job.id || before.state !== job.state) this.shell.say(this.line.textContent);
    if (before === null || before.state !== job.state || this.running) this.heard(job);
  }

  close() {
    clearTimeout(this.timer);
  }
}

/** Seconds as people say them. */
export function clock(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** A moment, in seconds since 1970, as the time that has gone by. */
export function since(when) {
  const gone = Date.now() / 1000 - when;
  return gone < 90 ? "a moment ago" : gone < 86400 ? `${clock(gone)} ago` : `on ${new Date(when * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" })}`;
}
