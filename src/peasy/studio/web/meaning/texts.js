// Sentences and documents on a map, in clusters, with their neighbours.

import { button, element, field, select, slider } from "../element.js";
import { Near } from "./near.js";
import { Part } from "./part.js";

const FIRST = `The pizza came out of the oven crisp and warm, wonderful.
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
const MOST_IN_URL = 3000;

export class TextMap extends Part {
  constructor(shell, models, state, go) {
    super(shell, models, state, ["encoder"], "m");
    this.go = go;
    this.missing = "Train one: page Train, kind encoder, data opinions.";
    this.text = state.d ?? FIRST;
    this.clusters = Number(state.k) || 4;
    this.input = element("textarea", { rows: 9, spellcheck: "false", maxlength: 200000 }, this.text);
    this.input.addEventListener("input", () => this.wrote(this.input.value));
    const file = element("input", { type: "file", accept: ".txt,.md,text/*", multiple: true });
    file.addEventListener("change", () => this.read([...file.files]));
    const count = slider("clusters", { min: 1, max: 8, step: 1, value: this.clusters }, (value) => {
      this.clusters = value;
      shell.set({ k: value === 4 ? null : value });
      this.soon();
    });
    const input = field("texts, one to a line; an empty line begins the next document", this.input);
    input.classList.add("wide");
    this.element = element("div", {}, element("div", { class: "row end" }, this.chooser, count, field("or files, each a document", file)), input, this.home);
  }

  wrote(text) {
    this.text = text;
    this.shell.set({ d: text === FIRST || text.length > MOST_IN_URL ? null : text });
    this.soon();
  }

  /** A file is a document; its sentences end where a sentence ends. */
  async read(files) {
    const texts = await Promise.all(files.map((file) => file.text()));
    this.input.value = texts.map((text) => text.replace(/\s+/g, " ").split(/(?<=[.!?])\s/).filter(Boolean).join("\n")).join("\n\n").slice(0, 200000);
    this.wrote(this.input.value);
  }

  documents() {
    const found = this.text.split(/\n\s*\n/).map((document) => document.split("\n").map((line) => line.trim()).filter(Boolean));
    return found.filter((document) => document.length);
  }

  asked() {
    return { verb: "meaning", body: { model: this.model, documents: this.documents(), clusters: this.clusters } };
  }

  draw(result, drawn) {
    const near = new Near([{ points: result.points }]);
    const picture = drawn.querySelector("figure.picture");
    const all = element("details", { class: "more" }, element("summary", {}, "Neighbours of all texts"), drawn);
    this.home.replaceChildren(this.pairs(result), element("div", { class: "map" }, picture, near.element), all);
    near.follow([picture.querySelector("peasy-plane")]);
    const points = picture.querySelector("peasy-plane")?.points ?? [];
    result.points.forEach(({ kind }, at) => points[at]?.classList.toggle("document", kind === "document"));
    if (result.points.some(({ kind }) => kind === "document")) picture.append(element("p", { class: "note" }, "Points with an outline are documents: the mean of their sentences."));
    picture.append(element("p", { class: "note" }, `The map holds ${Math.round(100 * result.kept)} % of the differences; neighbours are by cosine in all of them.`));
  }

  /** Two of the texts, to ask why they match. */
  pairs({ points }) {
    const sentences = points.filter(({ kind }) => kind === "sentence");
    const nearest = sentences.map((point, at) => ({ at, near: point.near.find(([other]) => points[other].kind === "sentence") })).filter(({ near }) => near).sort((one, other) => other.near[1] - one.near[1])[0];
    const names = sentences.map(({ name }, at) => [String(at), name.length > 60 ? `${name.slice(0, 57)} …` : name]);
    const chosen = [nearest?.at ?? 0, nearest?.near[0] ?? 1];
    const choosers = chosen.map((at, side) => select(names, String(at), (value) => (chosen[side] = Number(value))));
    const ask = button("Why do these two match?", () => {
      this.shell.set({ a: sentences[chosen[0]].name, b: sentences[chosen[1]].name, tab: "why" }, { push: true });
      this.go("why");
    });
    return element("div", { class: "row end" }, field("one", choosers[0]), field("another", choosers[1]), ask);
  }
}
