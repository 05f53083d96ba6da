// Tab: similarity of two sentences as a sum over word pairs; all pairs add up to the cosine.

import { element, fieldRow, fill, wideField } from "../element.js";
import { MeaningTab } from "./tab.js";

const DEFAULT_TEXTS = { a: "My phone broke, great.", b: "The laptop fell down and cracked, how wonderful." };

export class SimilarityTab extends MeaningTab {
	constructor(shell, models) {
		super(shell, models);
		this.texts = {};
		const textField = (parameter, label) => {
			const value = (this.texts[parameter] = this.state[parameter] ?? DEFAULT_TEXTS[parameter]);
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
			return wideField(label, input);
		};
		this.cosine = element("p.result-text", { role: "status" });
		this.element = element(
			"div",
			fieldRow(this.modelField),
			textField("a", "first sentence"),
			textField("b", "second sentence"),
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
