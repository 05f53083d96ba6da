// Panel of one translation model: its translation, word alignment of one head, all heads, and its beam search tree.

import { clamp, indices, writeNumber } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import { bdi, button, caveatLine, details, element, field, fill, quiet, select } from "../element.js";
import { drawTree } from "./tree.js";

const UNSURE = 0.8; // mean probability of the tokens below which a text is probably outside of what the model knows
const BEAM_DELAY = 150; // milliseconds after the last move of the slider before the request

export class TranslatorPanel {
	layer = 0;
	head = 0;
	/** @type {number[]} */
	layers;
	numHeads = 0;

	constructor(letter, models, defaultModel, shell, onModelChange) {
		this.letter = letter;
		this.models = models;
		this.defaultModel = defaultModel;
		this.shell = shell;
		this.turn = 0;
		this.modelSelect = select(
			models.map(({ name }) => name),
			"",
			(name) => {
				shell.setState({ [letter]: name, ...this.headState(null, null) }, { push: true });
				[this.model, this.layer, this.head] = [name, null, null];
				onModelChange();
			},
		);
		this.knows = element("p.quiet");
		this.translation = element("p.result-text", { "aria-live": "polite" });
		this.warning = element("p.note.warning", { role: "status" });
		this.heads = element("div");
		this.picture = element("div");
		this.tree = element("section", { "aria-label": "Beams" });
		const side = letter === "a" ? "left" : "right";
		this.element = element(
			"section.side.card",
			{ "aria-label": side },
			field(side, this.modelSelect),
			this.knows,
			this.warning,
			this.translation,
			this.heads,
			this.picture,
			this.tree,
		);
	}

	/** What the model was made for, from its card: said before it answers. */
	async showCard() {
		const { model } = this;
		const { result } = await this.shell.request("models", { name: model });
		if (model === this.model) this.knows.textContent = result.card?.description ?? "";
	}

	/** URL parameters of the chosen head. */
	headState(layer, head) {
		return { [`l${this.letter}`]: layer, [`h${this.letter}`]: head };
	}

	show(state, text, numBeams) {
		this.model = this.models.find(({ name }) => name === state[this.letter])?.name ?? this.defaultModel;
		this.modelSelect.value = this.model;
		this.shell.attempt(() => this.showCard(), this.knows);
		[this.layer, this.head] = Object.keys(this.headState()).map((name) =>
			state[name] === undefined ? null : Number(state[name]),
		);
		return this.translate(text, numBeams);
	}

	alignBody(text) {
		const head = this.head === null ? {} : { layer: this.layer, head: this.head };
		return { model: this.model, text, ...(this.target === null ? {} : { target: this.target }), ...head };
	}

	/** Find the best translation by beam search, then align its words. */
	async translate(text, numBeams) {
		const turn = (this.turn += 1);
		this.element.classList.add("busy");
		try {
			const body = { model: this.model, text, num_beams: numBeams, html: true };
			const response = await this.shell.request("beams", body);
			if (turn !== this.turn) return;
			const { result } = response;
			this.text = text;
			this.target = result.hypotheses[0].text;
			const probability = Math.exp(result.hypotheses[0].score);
			this.warning.textContent =
				probability < UNSURE
					? "Probably outside of what this model knows: the mean probability of the tokens of its answer is only " +
						`${writeNumber(probability, 2)}.`
					: "";
			fill(
				this.tree,
				element("h2", result.num_beams === 1 ? "One beam" : `${result.num_beams} beams`),
				drawTree(response),
			);
			await this.align(turn);
		} catch (error) {
			if (turn !== this.turn) return;
			this.target = null;
			[this.translation, this.warning, this.heads, this.tree].forEach((part) => fill(part));
			this.shell.showError(error, this.picture);
		} finally {
			if (turn === this.turn) this.element.classList.remove("busy");
		}
	}

	translateSoon(text, numBeams) {
		clearTimeout(this.timer);
		this.timer = setTimeout(() => this.translate(text, numBeams), BEAM_DELAY);
	}

	async align(turn = this.turn) {
		const response = await this.shell.request("align", { ...this.alignBody(this.text), html: true });
		if (turn !== this.turn) return;
		const { result } = response;
		[this.layer, this.head] = [result.layer, result.head];
		fill(this.translation, bdi(result.target.text || "(nothing)"));
		fill(this.heads, this.headGrid(result));
		this.drawAlignment(response);
	}

	/** The ribbons first; the map, the ranking and all numbers in a closed <details>. */
	drawAlignment(response) {
		const { result } = response;
		const rendered = [...renderDocument(response).children];
		const ribbons = rendered.find((child) => child.querySelector("peasy-links"));
		const rest = rendered.filter(
			(child) => child !== ribbons && !(child.matches("p.plain") && result.description.includes(child.textContent)),
		);
		const caveat = caveatLine(result.caveat);
		fill(
			this.picture,
			ribbons,
			element(
				"ul.facts",
				this.facts(result).map((fact) => element("li", fact)),
			),
			caveat,
			details(
				"As a heat map, and all heads ranked by alignment",
				rest.filter((child) => child.textContent !== caveat.textContent),
			),
		);
	}

	facts({ description, order, source, target }) {
		const quote = (positions) => positions.map((index) => `“${source.words[index]}”`).join(", ");
		return [
			...description,
			order.unaligned.length && `Not aligned: ${quote(order.unaligned)}.`,
			order.multiply_aligned.length && `Aligned with several words: ${quote(order.multiply_aligned)}.`,
			!target.text && "The translation is empty.",
		].filter(Boolean);
	}

	headGrid({ heads, best_head: best }) {
		const layers = [...new Set(heads.map(({ layer }) => layer))].sort((a, b) => a - b);
		const numHeads = Math.max(...heads.map(({ head }) => head)) + 1;
		[this.layers, this.numHeads] = [layers, numHeads];
		if (heads.length === 1) return [quiet("This model has one attention with one head.")];
		const grid = element("div.heads-grid", {
			role: "group",
			"aria-label": "Layer and head; a star marks the best one",
		});
		grid.style.gridTemplateColumns = `auto repeat(${numHeads}, auto)`;
		for (const layer of layers) {
			grid.append(
				element("span", `layer ${layer}`),
				...indices(numHeads).map((head) => {
					const isBest = best.layer === layer && best.head === head;
					const isChosen = this.layer === layer && this.head === head;
					return button(`${isBest ? "★ " : ""}${head}`, () => this.chooseHead(layer, head), {
						class: isBest && "best",
						"aria-pressed": isChosen,
						"aria-label": `layer ${layer}, head ${head}${isBest ? ", aligns best" : ""}`,
					});
				}),
			);
		}
		return [quiet("Choose a head; the star marks the one that aligns best."), grid];
	}

	/** Show a head; without one, that which aligns best. */
	async chooseHead(layer = null, head = null) {
		[this.layer, this.head] = [layer, head];
		this.shell.setState(this.headState(layer, head));
		const label = document.activeElement?.getAttribute("aria-label");
		await this.shell.attempt(() => this.align(), this.picture);
		if (label) this.heads.querySelector(`button[aria-label="${CSS.escape(label)}"]`)?.focus();
	}

	moveHead(layerStep, headStep) {
		if (!this.layers || this.layers.length * this.numHeads < 2) return;
		const layerIndex = clamp(this.layers.indexOf(this.layer) + layerStep, 0, this.layers.length - 1);
		this.chooseHead(this.layers[layerIndex], clamp(this.head + headStep, 0, this.numHeads - 1));
	}
}
