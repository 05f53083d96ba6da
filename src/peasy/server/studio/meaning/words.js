// Tab: words on two maps, with their vectors at initialization and after training.

import { details, element, fieldRow, fill, textArea, wideField } from "../element.js";
import { NeighbourList } from "./neighbours.js";
import { MeaningTab } from "./tab.js";

export class WordMap extends MeaningTab {
	constructor(shell, models, first) {
		super(shell, models, "words", "words", "mw");
		this.input = textArea(2, 4000, this.state.w ?? first.words, (words) =>
			this.updateSoon({ w: words === first.words ? null : words }),
		);
		this.element = element(
			"div",
			fieldRow(this.modelField, this.clusterSlider(5)),
			wideField("words, separated by spaces", this.input),
			this.resultContainer,
		);
	}

	buildRequest() {
		const words = this.input.value
			.split(/[\s,;]+/)
			.filter(Boolean)
			.slice(0, 500);
		return { command: "words", body: { model: this.model, words, clusters: this.clusters } };
	}

	draw(result, rendered) {
		const pictures = [...rendered.querySelectorAll("figure.picture")];
		rendered.querySelectorAll("h2").forEach((heading) => heading.remove());
		const sides = ["Before training", "After training"].map((title, index) =>
			element("section.side.card", { "aria-label": title }, pictures[index]),
		);
		const neighbours = new NeighbourList([
			{ period: "before", points: result.before },
			{ period: "after", points: result.after },
		]);
		const planes = sides.map((side) => side.querySelector("peasy-plane"));
		fill(
			this.resultContainer,
			element("div.sides", sides),
			neighbours.element,
			[...rendered.querySelectorAll(":scope > p")],
			details("Neighbours of all words", rendered),
		);
		neighbours.follow(planes);
		this.linkPlanes(planes);
	}

	/** Highlight the hovered word of one map on the other. */
	linkPlanes(planes) {
		planes.forEach((plane, side) =>
			plane.addEventListener("peasy-select", ({ detail }) => {
				planes[1 - side].points.forEach((point, index) =>
					point.classList.toggle("far", detail.index >= 0 && index !== detail.index),
				);
			}),
		);
	}
}
