// Attention of one sentence at every checkpoint of a run, with a slider over the checkpoints.

import { drawing } from "../draw.js";
import { button, element, field, select, slider } from "../element.js";

const BEAT = 700; // milliseconds for each checkpoint

export class Film {
  constructor(shell) {
    Object.assign(this, { shell, run: null, playing: 0 });
    this.bar = element("div", { class: "row end" });
    this.home = element("div", {});
    this.element = element("section", { "aria-label": "Attention while it learned" }, element("h3", {}, "Attention while it learned"), this.bar, this.home);
  }

  forget() {
    this.close();
    [this.run, this.maps, this.result] = [null, null, null];
    [this.bar, this.home].forEach((part) => part.replaceChildren());
  }

  async show(run, state) {
    this.run = run;
    this.place = state.place ?? null;
    this.at = state.step === undefined ? null : Number(state.step);
    await this.news();
  }

  /** Ask again: another checkpoint may have been kept. The last one is shown unless one was chosen. */
  async news() {
    if (!this.run) return;
    try {
      const answer = await this.shell.ask("film", { name: this.run, html: true, ...(this.place ? { place: this.place } : {}) });
      if (!answer.result.steps.length) return this.none();
      const same = this.result && JSON.stringify(this.result) === JSON.stringify(answer.result);
      if (!same) this.draw(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.none();
      this.shell.fail(error, this.home);
    }
  }

  none() {
    [this.maps, this.result] = [null, null];
    this.bar.replaceChildren();
    this.home.replaceChildren(element("p", { class: "quiet" }, "Nothing was kept yet. Models with attention are watched at every checkpoint; others have none."));
  }

  draw(answer) {
    const { steps, places, place, text, caveat } = answer.result;
    this.result = answer.result;
    const drawn = drawing(answer);
    this.maps = drawn.querySelector("peasy-maps");
    const last = steps.length - 1;
    const now = this.at === null ? last : Math.min(Math.max(steps.indexOf(this.at), 0), last);
    this.slide = slider("after step", { min: 0, max: last, step: 1, value: now, write: (at) => steps[at].toLocaleString("en") }, (at) => this.turn(at));
    this.player = button("Play", () => this.play());
    const attention = field("attention", select(places.map((each) => [each, named(each)]), place, (each) => {
      this.place = each;
      this.shell.set({ place: each });
      this.news();
    }));
    this.bar.replaceChildren(attention, this.slide, this.player);
    [...drawn.children].filter((child) => child.matches("p.note") && child.textContent.toLowerCase() === caveat.toLowerCase()).forEach((child) => child.remove());
    this.home.replaceChildren(element("p", { class: "sentence" }, element("bdi", {}, text)), drawn, element("p", { class: "quiet" }, caveat.charAt(0).toUpperCase() + caveat.slice(1)));
    this.maps?.addEventListener("peasy-select", ({ detail }) => this.mark(detail.across));
    this.maps?.ready?.then(() => now !== last && this.maps.choose(this.maps.down, now));
  }

  /** To one of the checkpoints. */
  turn(at) {
    this.maps?.choose(this.maps.down, at);
    this.mark(at);
  }

  mark(at) {
    const input = this.slide.querySelector("input");
    input.value = at;
    this.slide.querySelector("output").textContent = this.result.steps[at].toLocaleString("en");
    input.setAttribute("aria-valuetext", `step ${this.result.steps[at]}`);
    const last = at === this.result.steps.length - 1;
    this.at = last ? null : this.result.steps[at];
    this.shell.set({ step: this.at });
  }

  step(by) {
    if (!this.maps) return;
    this.turn(Math.min(Math.max(this.maps.across + by, 0), this.result.steps.length - 1));
  }

  play() {
    if (!this.maps) return;
    if (this.playing) return this.pause();
    this.player.textContent = "Pause";
    if (this.maps.across === this.result.steps.length - 1) this.turn(0);
    this.playing = setInterval(() => {
      if (!this.maps || this.maps.across >= this.result.steps.length - 1) return this.pause();
      return this.step(1);
    }, BEAT);
    return undefined;
  }

  pause() {
    clearInterval(this.playing);
    this.playing = 0;
    if (this.player) this.player.textContent = "Play";
  }

  close() {
    this.pause();
  }
}

function named(place) {
  const [stack, layer, part] = place.split(".");
  return `${stack}, layer ${layer}${part === "attention" ? "" : `, ${part.replaceAll("_", " ")}`}`;
}
