// Base class of the tabs of the page Meaning: a model, a request, a rendered result.

import { renderDocument } from "../document.js";
import { element, field, select } from "../element.js";

const TYPING_DELAY = 400; // milliseconds after the last change before the request

export class MeaningTab {
  /** `kinds` are the model kinds that it accepts, `modelParameter` is the URL parameter of the chosen model. */
  constructor(shell, models, state, kinds, modelParameter) {
    Object.assign(this, { shell, state });
    this.models = models.filter(({ is }) => kinds.includes(is)).sort((one, other) => kinds.indexOf(one.is) - kinds.indexOf(other.is));
    this.resultContainer = element("div", { "aria-live": "off" });
    this.model = this.models.find(({ name }) => name === state[modelParameter])?.name ?? this.models[0]?.name;
    this.modelField = field("model", select(this.models.map(({ name }) => name), this.model, (name) => {
      this.model = name;
      shell.setState({ [modelParameter]: name }, { push: true });
      this.update();
    }));
  }

  start() {
    if (this.model) return this.update();
    return this.shell.showError(Object.assign(new Error("There is no model for this yet."), { hint: this.noModelHint }), this.resultContainer);
  }

  updateSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.update(), TYPING_DELAY);
  }

  async update() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.resultContainer.classList.add("busy");
    try {
      const { command, body } = this.buildRequest();
      const response = await this.shell.request(command, { ...body, html: true });
      if (turn !== this.turn) return;
      this.response = response;
      this.draw(response.result, renderDocument(response));
    } catch (error) {
      if (turn === this.turn) this.shell.showError(error, this.resultContainer);
    } finally {
      if (turn === this.turn) this.resultContainer.classList.remove("busy");
    }
  }
}
