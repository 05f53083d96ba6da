// What the parts of this page share: a model, a question, a drawing of its answer.

import { drawing } from "../draw.js";
import { element, field, select } from "../element.js";

export class Part {
  /** `kinds` are the models it takes, `letter` the parameter of the URL that names the chosen one. */
  constructor(shell, models, state, kinds, letter) {
    Object.assign(this, { shell, state, letter });
    this.models = models.filter(({ is }) => kinds.includes(is)).sort((one, other) => kinds.indexOf(one.is) - kinds.indexOf(other.is));
    this.home = element("div", { "aria-live": "off" });
    this.model = this.models.find(({ name }) => name === state[letter])?.name ?? this.models[0]?.name;
    this.chooser = field("model", select(this.models.map(({ name }) => name), this.model, (name) => {
      this.model = name;
      shell.set({ [letter]: name }, { push: true });
      this.ask();
    }));
  }

  start() {
    if (this.model) return this.ask();
    return this.shell.fail(Object.assign(new Error("There is no model for this yet."), { hint: this.missing }), this.home);
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 400);
  }

  async ask() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.home.classList.add("busy");
    try {
      const { verb, body } = this.asked();
      const answer = await this.shell.ask(verb, { ...body, html: true });
      if (turn !== this.turn) return;
      this.answer = answer;
      this.draw(answer.result, drawing(answer));
    } catch (error) {
      if (turn === this.turn) this.shell.fail(error, this.home);
    } finally {
      if (turn === this.turn) this.home.classList.remove("busy");
    }
  }
}
