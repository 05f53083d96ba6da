// Tab: words on two maps, with their vectors at initialization and after training.

import { element, field, slider } from "../element.js";
import { NeighbourList } from "./neighbours.js";
import { MeaningTab } from "./tab.js";

const KINDS = ["words", "encoder", "recurrent", "convolution", "decoder"];
const DEFAULT_WORDS = "great awesome wonderful superb terrible awful horrible dreadful pizza soup cake salad phone laptop camera printer train bus ferry flight song concert choir band";

export class WordMap extends MeaningTab {
  constructor(shell, models, state) {
    super(shell, models, state, KINDS, "mw");
    this.noModelHint = "Train one on the page Train: kind words, data opinions.";
    this.words = state.w ?? null;
    this.clusters = Number(state.k) || 5;
    this.input = element("textarea", { rows: 2, spellcheck: "false", maxlength: 4000 }, this.words ?? DEFAULT_WORDS);
    this.input.addEventListener("input", () => {
      this.words = this.input.value;
      shell.setState({ w: this.words === DEFAULT_WORDS ? null : this.words });
      this.updateSoon();
    });
    const clusterSlider = slider("clusters", { min: 1, max: 8, step: 1, value: this.clusters }, (value) => {
      this.clusters = value;
      shell.setState({ k: value === 5 ? null : value });
      this.updateSoon();
    });
    const wordField = field("words, separated by spaces", this.input);
    wordField.classList.add("wide");
    this.element = element("div", {}, element("div", { class: "row end" }, this.modelField, clusterSlider), wordField, this.resultContainer);
  }

  buildRequest() {
    const words = (this.words ?? DEFAULT_WORDS).split(/[\s,;]+/).filter(Boolean).slice(0, 500);
    return { command: "words", body: { model: this.model, words, clusters: this.clusters } };
  }

  draw(result, rendered) {
    const pictures = [...rendered.querySelectorAll("figure.picture")];
    rendered.querySelectorAll("h2").forEach((heading) => heading.remove());
    const sides = ["Before training", "After training"].map((title, index) => element("section", { class: "side card", "aria-label": title }, pictures[index], element("p", { class: "quiet" }, `The map keeps ${Math.round(100 * result.kept[index])} % of the variance.`)));
    const neighbours = new NeighbourList([{ period: "before", points: result.before }, { period: "after", points: result.after }]);
    const planes = sides.map((side) => side.querySelector("peasy-plane"));
    const details = element("details", { class: "more" }, element("summary", {}, "Neighbours of all words"), rendered);
    this.resultContainer.replaceChildren(element("div", { class: "sides" }, sides), neighbours.element, element("p", { class: "quiet" }, result.description), details);
    if (result.unknown.length) this.resultContainer.append(element("p", { class: "quiet" }, `Unknown to the model: ${result.unknown.join(", ")}.`));
    neighbours.follow(planes);
    this.linkPlanes(planes);
  }

  /** Highlight the hovered word of one map on the other. */
  linkPlanes(planes) {
    planes.forEach((plane, side) => {
      const other = planes[1 - side];
      const highlight = (event) => {
        const hovered = plane.points?.indexOf(event.target) ?? -1;
        other?.points?.forEach((point, index) => point.classList.toggle("far", hovered >= 0 && index !== hovered));
      };
      plane?.addEventListener("pointerover", highlight);
      plane?.addEventListener("focusin", highlight);
      plane?.addEventListener("pointerleave", () => other?.points?.forEach((point) => point.classList.remove("far")));
    });
  }
}
