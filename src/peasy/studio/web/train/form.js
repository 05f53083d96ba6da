// What to train, on what, how large and how long.

import { choices, element, field, select } from "../element.js";

const KINDS = [
  ["gpt", "gpt: a Transformer that writes on"], ["rnn", "rnn: a recurrent network"], ["cnn", "cnn: convolutions over the last words"], ["ngram", "ngram: counts of word sequences"],
  ["words", "words: one vector for each word"], ["encoder", "encoder: texts into vectors"], ["translator", "translator: Transformer, text to text"], ["rnn-translator", "rnn-translator: as of 2015"],
];
const PAIRED = ["translator", "rnn-translator"];
const SIZES = [["tiny", "tiny: for a try"], ["small", "small"], ["base", "base: slow on a processor"]];
const PIECE = 200000; // characters of an upload that travel at once

export class Form {
  constructor(shell, begin) {
    Object.assign(this, { shell, begin });
    this.kind = select(KINDS, "gpt", () => this.kept());
    this.data = select([], "", () => this.kept());
    this.size = select(SIZES, "tiny", () => this.kept());
    this.file = element("input", { type: "file", accept: ".txt,.tsv,.jsonl,text/*" });
    this.minutes = element("input", { type: "number", min: 0.05, max: 1440, step: "any", value: 1 });
    this.steps = element("input", { type: "number", min: 1, max: 1000000, step: 1, placeholder: "or" });
    this.seed = element("input", { type: "number", min: 0, max: 2 ** 31, step: 1, value: 0 });
    this.name = element("input", { type: "text", maxlength: 60, pattern: "[A-Za-z0-9][\\w.\\-]*", placeholder: "chosen for you" });
    this.sentence = element("input", { type: "text", maxlength: 500, class: "wide", placeholder: "the first one held out" });
    this.boxes = KINDS.slice(0, 4).map(([kind]) => element("input", { type: "checkbox", value: kind, checked: true }));
    this.start = element("button", { type: "submit", class: "plain main" }, "Start");
    this.several = false;
    this.furniture();
  }

  furniture() {
    const mode = choices("train", [["one", "one kind"], ["several", "several kinds, compared"]], "one", (value) => this.turn(value === "several"));
    this.one = field("kind", this.kind);
    this.many = element("fieldset", { class: "checks", hidden: true }, element("legend", {}, "kinds"), this.boxes.map((box) => element("label", {}, box, box.value)));
    this.own = field("your text", this.file, ".txt; .tsv with two columns for translators");
    this.own.hidden = true;
    const watched = field("sentence whose attention is kept at every checkpoint", this.sentence);
    watched.classList.add("wide");
    this.element = element("form", { class: "card", "aria-label": "New run", novalidate: true },
      element("div", { class: "row" }, mode),
      element("div", { class: "row end" }, this.one, this.many, field("data", this.data), this.own, field("size", this.size), field("minutes", this.minutes), field("steps", this.steps), field("seed", this.seed), field("name", this.name)),
      element("details", { class: "more" }, element("summary", {}, "More"), watched),
      element("div", { class: "row" }, this.start, (this.note = element("span", { class: "quiet", role: "status" }))));
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.mode = mode;
  }

  /** Corpora from the server, choices from the URL. */
  async furnish(state) {
    const { corpora } = (await this.shell.ask("data", {})).result;
    this.data.replaceChildren(...corpora.map(({ name, says }) => element("option", { value: name }, `${name}: ${says}`)), element("option", { value: "" }, "your own text …"));
    this.kind.value = KINDS.some(([kind]) => kind === state.kind) ? state.kind : "gpt";
    this.data.value = corpora.some(({ name }) => name === state.data) ? state.data : PAIRED.includes(this.kind.value) ? "locales" : "stories";
    this.size.value = SIZES.some(([size]) => size === state.size) ? state.size : "tiny";
    this.own.hidden = this.data.value !== "";
    if (state.mode === "several") this.mode.querySelector("input[value=several]").click();
  }

  kept() {
    const fits = PAIRED.includes(this.kind.value) ? ["locales", ""] : null;
    if (fits && !this.several && !fits.includes(this.data.value)) this.data.value = "locales";
    this.own.hidden = this.data.value !== "";
    this.shell.set({ kind: this.kind.value, data: this.data.value || null, size: this.size.value });
  }

  turn(several) {
    this.several = several;
    [this.one.hidden, this.many.hidden] = [several, !several];
    this.start.textContent = several ? "Compare" : "Start";
    this.shell.set({ mode: several ? "several" : null });
  }

  busy(goes) {
    this.start.disabled = goes;
    this.note.textContent = goes ? "One at a time: something goes on already." : "";
  }

  async submit() {
    try {
      const body = { ...(await this.source()), preset: this.size.value, seed: Number(this.seed.value) || 0, ...this.budget() };
      if (this.name.value.trim()) body.run = this.name.value.trim();
      if (this.several) return this.begin("compare", { ...body, kinds: this.boxes.filter((box) => box.checked).map((box) => box.value) });
      if (this.sentence.value.trim()) body.sentence = this.sentence.value.trim();
      return this.begin("train", { ...body, kind: this.kind.value });
    } catch (error) {
      return this.shell.fail(error);
    }
  }

  budget() {
    if (this.steps.value) return { steps: Number(this.steps.value) };
    return this.minutes.value ? { minutes: Number(this.minutes.value) } : {};
  }

  /** A built-in corpus by name, or the file, which travels in pieces. */
  async source() {
    if (this.data.value) return { data: this.data.value };
    const [file] = this.file.files;
    if (!file) throw Object.assign(new Error("No text was chosen."), { hint: "Choose a file, or one of the built-in corpora." });
    const text = await file.text();
    let upload = null;
    for (let at = 0; at < Math.max(text.length, 1); ) {
      const end = cut(text, at + PIECE);
      const piece = { name: file.name, text: text.slice(at, end), ...(upload ? { upload } : {}) };
      upload = (await this.shell.ask("upload", piece)).result.upload;
      this.note.textContent = `Uploaded ${Math.round((100 * end) / text.length)} %.`;
      at = end;
      if (end >= text.length) break;
    }
    return { upload };
  }
}

/** Never between the two halves of a character. */
function cut(text, at) {
  const code = text.charCodeAt(at - 1);
  return Math.min(code >= 0xd800 && code < 0xdc00 ? at + 1 : at, text.length);
}
