// Tab: similarity of two sentences as a sum over word pairs; all pairs add up to the cosine.

import { element, field } from "../element.js";
import { MeaningTab } from "./tab.js";

const DEFAULT_TEXTS = ["My phone broke, great.", "The laptop fell down and cracked, how wonderful."];

export class SimilarityTab extends MeaningTab {
  constructor(shell, models, state) {
    super(shell, models, state, ["encoder"], "m");
    this.noModelHint = "Train one on the page Train: kind encoder, data opinions.";
    this.texts = [state.a ?? DEFAULT_TEXTS[0], state.b ?? DEFAULT_TEXTS[1]];
    const inputs = this.texts.map((text, index) => {
      const input = element("input", { type: "text", value: text, maxlength: 2000, spellcheck: "false", class: "wide" });
      input.addEventListener("input", () => {
        this.texts[index] = input.value;
        shell.setState({ [index ? "b" : "a"]: input.value });
        this.updateSoon();
      });
      const inputField = field(index ? "second sentence" : "first sentence", input);
      inputField.classList.add("wide");
      return inputField;
    });
    this.cosine = element("p", { class: "result-text", role: "status" });
    this.element = element("div", {}, element("div", { class: "row end" }, this.modelField), inputs, this.cosine, this.resultContainer);
  }

  buildRequest() {
    return { command: "why", body: { model: this.model, first: this.texts[0], second: this.texts[1] } };
  }

  draw(result, rendered) {
    const sum = result.pairs.flat().reduce((total, value) => total + value, 0);
    this.cosine.textContent = `cosine ${result.cosine.toFixed(4)} = sum of ${result.pairs.flat().length} word pairs, ${sum.toFixed(4)}`;
    rendered.querySelector("p.plain")?.remove();
    this.resultContainer.replaceChildren(rendered);
  }
}
