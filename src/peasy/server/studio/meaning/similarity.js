// Tab: similarity of two sentences as a sum over word pairs; all pairs add up to the cosine.

import { element, fieldRow, fill, wideField } from "../element.js";
import { MeaningTab } from "./tab.js";

export class SimilarityTab extends MeaningTab {
	constructor(shell, models, first) {
		super(shell, models);
		this.texts = {};
		const textField = (parameter, name) => {
			const value = (this.texts[parameter] = this.state[parameter] ?? first[name]);
			const input = element("input.wide", {
				type: "text",
				value,
				maxlength: 2000,
				spellcheck: "false",
				oninput: () => {
					this.texts[parameter] = input.value;
					this.updateSoon({ [parameter]: input.value });
				},
			});
			return wideField(`${name} sentence`, input);
		};
		this.cosine = element("p.result-text", { role: "status" });
		this.element = element(
			"div",
			fieldRow(this.modelField),
			textField("a", "first"),
			textField("b", "second"),
			this.cosine,
			this.resultContainer,
		);
	}

	buildRequest() {
		return { command: "why", body: { model: this.model, first: this.texts.a, second: this.texts.b } };
	}

	draw(_result, rendered) {
		const summary = rendered.querySelector("p.plain");
		this.cosine.textContent = summary.textContent;
		summary.remove();
		fill(this.resultContainer, rendered);
	}
}
