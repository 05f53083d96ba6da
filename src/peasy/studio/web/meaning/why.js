// Why two sentences match: what each pair of their words brings; all pairs add up to the cosine.

import { element, field } from "../element.js";
import { Part } from "./part.js";

const FIRST = ["My phone broke, great.", "The laptop fell down and cracked, how wonderful."];

export class Why extends Part {
  constructor(shell, models, state) {
    super(shell, models, state, ["encoder"], "m");
    this.missing = "Train one: page Train, kind encoder, data opinions.";
    this.texts = [state.a ?? FIRST[0], state.b ?? FIRST[1]];
    const inputs = this.texts.map((text, at) => {
      const input = element("input", { type: "text", value: text, maxlength: 2000, spellcheck: "false", class: "wide" });
      input.addEventListener("input", () => {
        this.texts[at] = input.value;
        shell.set({ [at ? "b" : "a"]: input.value });
        this.soon();
      });
      const home = field(at ? "second sentence" : "first sentence", input);
      home.classList.add("wide");
      return home;
    });
    this.cosine = element("p", { class: "said", role: "status" });
    this.element = element("div", {}, element("div", { class: "row end" }, this.chooser), inputs, this.cosine, this.home);
  }

  asked() {
    return { verb: "why", body: { model: this.model, first: this.texts[0], second: this.texts[1] } };
  }

  draw(result, drawn) {
    const sum = result.pairs.flat().reduce((total, each) => total + each, 0);
    this.cosine.textContent = `cosine ${result.cosine.toFixed(4)} = the sum of ${result.pairs.flat().length} pairs, ${sum.toFixed(4)}`;
    drawn.querySelector("p.plain")?.remove();
    this.home.replaceChildren(drawn);
  }
}
