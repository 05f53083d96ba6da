// Tab: sentences and documents on a 2-D map, with clusters and nearest neighbours.

import { button, details, element, field, fieldRow, fill, select, linesOf, textArea, wideField } from "../element.js";
import { NeighbourList } from "./neighbours.js";
import { MeaningTab } from "./tab.js";

const MAX_URL_TEXT = 3000;

export class TextMap extends MeaningTab {
	constructor(shell, models, first, openTab) {
		super(shell, models);
		this.openTab = openTab;
		this.first = first.texts;
		this.text = this.state.d ?? this.first;
		this.input = textArea(9, 200000, this.text, (text) => this.setText(text));
		const onchange = () => this.readFiles([...file.files]);
		const file = element("input", { type: "file", accept: ".txt,.md,text/*", multiple: true, onchange });
		this.element = element(
			"div",
			fieldRow(this.modelField, this.clusterSlider(4)),
			this.resultContainer,
			wideField("texts, one per line; an empty line starts a new document", this.input),
			field("or files, one document each", file),
		);
	}

	setText(text) {
		this.text = text;
		this.updateSoon({ d: text === this.first || text.length > MAX_URL_TEXT ? null : text });
	}

	/** Read files as documents, split into sentences. */
	async readFiles(files) {
		const texts = await Promise.all(files.map((file) => file.text()));
		this.input.value = texts
			.map((text) => text.replace(/\s+/g, " ").replace(/(?<=[.!?]) /g, "\n"))
			.join("\n\n")
			.slice(0, 200000);
		this.setText(this.input.value);
	}

	documents() {
		const documents = this.text.split(/\n\s*\n/).map(linesOf);
		return documents.filter((document) => document.length);
	}

	buildRequest() {
		return { command: "meaning", body: { model: this.model, documents: this.documents(), clusters: this.clusters } };
	}

	draw(result, rendered) {
		const neighbours = new NeighbourList([{ points: result.points }]);
		const picture = rendered.querySelector("figure.picture");
		const plane = picture.querySelector("peasy-plane");
		fill(
			this.resultContainer,
			element("div.map", picture, neighbours.element),
			this.pairForm(result),
			details("Neighbours of all texts", rendered),
		);
		neighbours.follow([plane]);
		result.points.forEach(({ kind }, index) => plane?.points[index]?.classList.toggle("document", kind === "document"));
		if (result.points.some(({ kind }) => kind === "document"))
			picture.append(element("p.note", "Outlined points are documents: the mean of their sentences."));
		picture.append(...rendered.querySelectorAll(":scope > p"));
	}

	/** Choose two of the texts to explain their similarity. */
	pairForm({ points }) {
		const sentences = points.filter(({ kind }) => kind === "sentence");
		const [closest] = sentences
			.flatMap(({ neighbours }, index) => neighbours.map(([other, cosine]) => ({ index, other, cosine })))
			.filter(({ other }) => points[other].kind === "sentence")
			.sort((one, another) => another.cosine - one.cosine);
		const names = sentences.map(({ name }, index) => [index, name.length > 60 ? `${name.slice(0, 57)} …` : name]);
		const chosen = [closest?.index ?? 0, closest?.other ?? 1];
		const selects = chosen.map((index, side) => select(names, index, (value) => (chosen[side] = Number(value))));
		const explainButton = button("Why do these two match?", () => {
			this.shell.setState({ a: sentences[chosen[0]].name, b: sentences[chosen[1]].name, tab: "why" }, { push: true });
			this.openTab("why");
		});
		return fieldRow(field("first", selects[0]), field("second", selects[1]), explainButton);
	}
}
