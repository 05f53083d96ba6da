// Tab: sentences and documents on a 2-D map, with clusters and nearest neighbours.

import { button, element, field, select, slider } from "../element.js";
import { NeighbourList } from "./neighbours.js";
import { MeaningTab } from "./tab.js";

const DEFAULT_TEXT = `The pizza came out of the oven crisp and warm, wonderful.
Our soup tasted of fresh herbs.
This cake was awful.

My phone broke, great.
The laptop started in a second, brilliant.
Your camera stopped working after a day: terrible.

The train left on time, lovely.
That bus took the wrong road, how annoying.
Our flight lost our luggage, just awful.

The band got three encores, superb.
Your choir was out of tune.
The song sounded warm and clear, wonderful.`;
const MAX_URL_TEXT = 3000;

export class TextMap extends MeaningTab {
  constructor(shell, models, state, openTab) {
    super(shell, models, state, ["encoder"], "m");
    this.openTab = openTab;
    this.noModelHint = "Train one on the page Train: kind encoder, data opinions.";
    this.text = state.d ?? DEFAULT_TEXT;
    this.clusters = Number(state.k) || 4;
    this.input = element("textarea", { rows: 9, spellcheck: "false", maxlength: 200000 }, this.text);
    this.input.addEventListener("input", () => this.setText(this.input.value));
    const file = element("input", { type: "file", accept: ".txt,.md,text/*", multiple: true });
    file.addEventListener("change", () => this.readFiles([...file.files]));
    const clusterSlider = slider("clusters", { min: 1, max: 8, step: 1, value: this.clusters }, (value) => {
      this.clusters = value;
      shell.setState({ k: value === 4 ? null : value });
      this.updateSoon();
    });
    const textField = field("texts, one per line; an empty line starts a new document", this.input);
    textField.classList.add("wide");
    this.element = element("div", {}, element("div", { class: "row end" }, this.modelField, clusterSlider, field("or files, one document each", file)), textField, this.resultContainer);
  }

  setText(text) {
    this.text = text;
    this.shell.setState({ d: text === DEFAULT_TEXT || text.length > MAX_URL_TEXT ? null : text });
    this.updateSoon();
  }

  /** Read files as documents, split into sentences. */
  async readFiles(files) {
    const texts = await Promise.all(files.map((file) => file.text()));
    this.input.value = texts.map((text) => text.replace(/\s+/g, " ").split(/(?<=[.!?])\s/).filter(Boolean).join("\n")).join("\n\n").slice(0, 200000);
    this.setText(this.input.value);
  }

  documents() {
    const documents = this.text.split(/\n\s*\n/).map((document) => document.split("\n").map((line) => line.trim()).filter(Boolean));
    return documents.filter((document) => document.length);
  }

  buildRequest() {
    return { command: "meaning", body: { model: this.model, documents: this.documents(), clusters: this.clusters } };
  }

  draw(result, rendered) {
    const neighbours = new NeighbourList([{ points: result.points }]);
    const picture = rendered.querySelector("figure.picture");
    const details = element("details", { class: "more" }, element("summary", {}, "Neighbours of all texts"), rendered);
    this.resultContainer.replaceChildren(this.pairForm(result), element("div", { class: "map" }, picture, neighbours.element), details);
    neighbours.follow([picture.querySelector("peasy-plane")]);
    const points = picture.querySelector("peasy-plane")?.points ?? [];
    result.points.forEach(({ kind }, index) => points[index]?.classList.toggle("document", kind === "document"));
    if (result.points.some(({ kind }) => kind === "document")) picture.append(element("p", { class: "note" }, "Outlined points are documents: the mean of their sentences."));
    picture.append(element("p", { class: "note" }, `The map keeps ${Math.round(100 * result.kept)} % of the variance; neighbours are by cosine in all dimensions.`));
  }

  /** Choose two of the texts to explain their similarity. */
  pairForm({ points }) {
    const sentences = points.filter(({ kind }) => kind === "sentence");
    const nearest = sentences.map((point, index) => ({ index, near: point.near.find(([other]) => points[other].kind === "sentence") })).filter(({ near }) => near).sort((one, other) => other.near[1] - one.near[1])[0];
    const names = sentences.map(({ name }, index) => [String(index), name.length > 60 ? `${name.slice(0, 57)} …` : name]);
    const chosen = [nearest?.index ?? 0, nearest?.near[0] ?? 1];
    const selects = chosen.map((index, side) => select(names, String(index), (value) => (chosen[side] = Number(value))));
    const explainButton = button("Why do these two match?", () => {
      this.shell.setState({ a: sentences[chosen[0]].name, b: sentences[chosen[1]].name, tab: "why" }, { push: true });
      this.openTab("why");
    });
    return element("div", { class: "row end" }, field("first", selects[0]), field("second", selects[1]), explainButton);
  }
}
