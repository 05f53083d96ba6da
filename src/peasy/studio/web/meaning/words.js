// Words on two maps: with the numbers training began with, and with those it ended with.

import { element, field, slider } from "../element.js";
import { Near } from "./near.js";
import { Part } from "./part.js";

const KINDS = ["words", "encoder", "recurrent", "convolution", "decoder"];
const FIRST = "great awesome wonderful superb terrible awful horrible dreadful pizza soup cake salad phone laptop camera printer train bus ferry flight song concert choir band";

export class Words extends Part {
  constructor(shell, models, state) {
    super(shell, models, state, KINDS, "mw");
    this.missing = "Train one: page Train, kind words, data opinions.";
    this.words = state.w ?? null;
    this.clusters = Number(state.k) || 5;
    this.input = element("textarea", { rows: 2, spellcheck: "false", maxlength: 4000 }, this.words ?? FIRST);
    this.input.addEventListener("input", () => {
      this.words = this.input.value;
      shell.set({ w: this.words === FIRST ? null : this.words });
      this.soon();
    });
    const count = slider("clusters", { min: 1, max: 8, step: 1, value: this.clusters }, (value) => {
      this.clusters = value;
      shell.set({ k: value === 5 ? null : value });
      this.soon();
    });
    const input = field("words, with blanks between them", this.input);
    input.classList.add("wide");
    this.element = element("div", {}, element("div", { class: "row end" }, this.chooser, count), input, this.home);
  }

  asked() {
    const words = (this.words ?? FIRST).split(/[\s,;]+/).filter(Boolean).slice(0, 500);
    return { verb: "words", body: { model: this.model, words, clusters: this.clusters } };
  }

  draw(result, drawn) {
    const pictures = [...drawn.querySelectorAll("figure.picture")];
    drawn.querySelectorAll("h2").forEach((heading) => heading.remove());
    const sides = ["Before training", "After training"].map((title, at) => element("section", { class: "side card", "aria-label": title }, pictures[at], element("p", { class: "quiet" }, `The map holds ${Math.round(100 * result.kept[at])} % of the differences.`)));
    const near = new Near([{ says: "before", points: result.before }, { says: "after", points: result.after }]);
    const planes = sides.map((side) => side.querySelector("peasy-plane"));
    const all = element("details", { class: "more" }, element("summary", {}, "Neighbours of all words"), drawn);
    this.home.replaceChildren(element("div", { class: "sides" }, sides), near.element, element("p", { class: "quiet" }, result.says), all);
    if (result.unknown.length) this.home.append(element("p", { class: "quiet" }, `Unknown to the model: ${result.unknown.join(", ")}.`));
    near.follow(planes);
    this.link(planes);
  }

  /** The word that is pointed at on one map is found on the other. */
  link(planes) {
    planes.forEach((plane, at) => {
      const other = planes[1 - at];
      const hear = (event) => {
        const place = plane.points?.indexOf(event.target) ?? -1;
        other?.points?.forEach((point, there) => point.classList.toggle("far", place >= 0 && there !== place));
      };
      plane?.addEventListener("pointerover", hear);
      plane?.addEventListener("focusin", hear);
      plane?.addEventListener("pointerleave", () => other?.points?.forEach((point) => point.classList.remove("far")));
    });
  }
}
