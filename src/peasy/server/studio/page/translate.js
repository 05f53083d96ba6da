// Page Translate: two translation models side by side, with word alignment and beam search tree.

import { clamp } from "/web/render/numbers.js";
import { ApiError } from "../api.js";
import { element, examples, flexRow, pageHeader, setSlider, slider } from "../element.js";
import { headKeys } from "/web/render/moves.js";
import { TranslatorPanel } from "../translate/panel.js";

export const page = { text: "A text to translate" };

const DEFAULT_TEXT = "Sunday, November 15, 2026";
const DEFAULT_BEAMS = 4;
const EXAMPLES = [["3 days ago"], ["$5.20"], ["Monday, May 4, 1981"], ["98 miles per hour"]];
const DEFAULT_KINDS = ["recurrent-translator", "encoder-decoder"]; // side by side

export class Page {
	constructor(place, shell) {
		this.place = place;
		this.shell = shell;
		place.append(
			...pageHeader(
				"Translate",
				"Two models translate the same text. Ribbons join each word of the translation with the source words it " +
					"attends to: where they cross, the word order changes.",
			),
		);
	}

	async start(state) {
		const { shell } = this;
		const models = await shell.bar.listModels("translate", true);
		if (!models.length)
			throw new ApiError(
				"There is no translation model yet.",
				"Train one on the page Train: kind translator, data locales.",
			);
		// the model in use is on the right, beside another one
		const others = models.filter(({ name }) => name !== state.m);
		const defaultModel = (kind) => (others.find((model) => model.model_type === kind) ?? others[0] ?? models[0]).name;
		this.panels = ["a", "m"].map((letter, index) => {
			const panel = new TranslatorPanel(letter, models, defaultModel(DEFAULT_KINDS[index]), shell, () =>
				panel.translate(this.text, this.numBeams),
			);
			return panel;
		});
		this.beamSlider = slider("beams", { min: 1, max: 8, value: DEFAULT_BEAMS }, (value) => {
			shell.setState({ beam: value === DEFAULT_BEAMS ? null : value });
			this.numBeams = value;
			this.panels.forEach((panel) => panel.translateSoon(this.text, value));
		});
		this.place.append(
			flexRow(this.beamSlider, examples("translate", EXAMPLES)),
			element(
				"div.sides",
				this.panels.map((panel) => panel.element),
			),
		);
		const [first, second] = this.panels;
		const alignment = (panel) => ({ command: "align", body: panel.alignBody(this.text) });
		shell.setExports(
			() => alignment(second),
			() => [{ label: `CSV of ${first.model}`, run: () => shell.saveFile(alignment(first), "csv") }],
		);
		shell.setCopyItems(() =>
			this.panels.map((panel) => ({ label: `translation of ${panel.model}`, text: panel.target ?? "" })),
		);
		shell.keys.add([
			...headKeys((layers, heads) => this.panels.forEach((panel) => panel.moveHead(layers, heads))),
			{ key: "b", label: "Heads that align best", run: () => this.panels.forEach((panel) => panel.chooseHead()) },
		]);
		shell.onStateChange((newState) => this.show(newState));
		shell.bar.show({ t: DEFAULT_TEXT, ...state });
		await this.show(state);
	}

	show(state) {
		this.text = state.t?.trim() || DEFAULT_TEXT;
		this.numBeams = clamp(Number(state.beam) || DEFAULT_BEAMS, 1, 8);
		setSlider(this.beamSlider, this.numBeams, this.numBeams);
		return Promise.all(this.panels.map((panel) => panel.show(state, this.text, this.numBeams)));
	}
}
