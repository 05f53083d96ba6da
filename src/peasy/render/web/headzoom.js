// One head opened: the row of the chosen token, and the arithmetic of one weight, step by step.

import { CATEGORY_COLOURS, cssColour, fractionOf, rampOf } from "./colour.js";
import { bdi, button, make, quiet } from "./figure.js";
import { indices, writeNumber } from "./numbers.js";
import { Player } from "./player.js";
import { explainWeight } from "./weight.js";

const STEP_TIME = 1600; // milliseconds per step while playing
const MAX_KEYS = 12; // keys of a row that are listed

const ARITHMETIC = [
	["q · k", "How well does this key match this query? Multiply number by number, then add."],
	["scale", "Divide by √d, so that long vectors do not make the softmax one-sided."],
	["mask", "Tokens to the right are hidden; the others keep their score."],
	["softmax", "e to the power of each score, divided by the sum of the row: the weights add up to 1."],
	["· V", "Each value vector times its weight, added up: what this head hands on."],
];

/** `head`: query, key, value, masked, weights, context as rows of numbers, scale, softcap, queries, keys (pieces). */
export class HeadZoom {
	/** @type {Record<string, any> | null} */
	head = null;
	row = 0;
	key = 0;

	constructor(onCell, onStep) {
		this.onCell = onCell;
		this.onStep = onStep;
		this.step = 0;
		this.element = make("section", { class: "zoom", "aria-label": "One head, step by step" });
		this.player = new Player(
			() => this.move(1),
			STEP_TIME,
			(playing) => this.playButton && (this.playButton.textContent = playing ? "Stop" : "Play"),
		);
	}

	close() {
		this.player.stop();
	}

	show(head, row, key, step = this.step) {
		[this.head, this.row, this.key, this.step] = [head, row, key, Math.min(Math.max(step, 0), ARITHMETIC.length - 1)];
		this.element.replaceChildren(
			this.#trail(),
			make("div", { class: "zoom-parts" }, this.#drawRow(), this.#drawCell()),
		);
	}

	/** Show the next step of the arithmetic; false after the last. */
	move(by) {
		const next = this.step + by;
		if (!this.head || next < 0 || next >= ARITHMETIC.length) return false;
		this.show(this.head, this.row, this.key, next);
		this.onStep(next);
		return next < ARITHMETIC.length - 1;
	}

	togglePlay() {
		if (!this.head) return;
		if (!this.player.timer && this.step === ARITHMETIC.length - 1) this.show(this.head, this.row, this.key, 0);
		this.player.toggle();
	}

	#trail() {
		const { title, queries, keys } = this.head;
		const parts = ["model", ...title, queries[this.row], keys[this.key]];
		return make(
			"p",
			{ class: "trail" },
			parts.flatMap((part, index) => [index ? " › " : "", bdi(part)]),
		);
	}

	#drawRow() {
		const { weights, keys, queries } = this.head;
		const row = weights[this.row];
		const order = [...row.keys()].sort((one, other) => row[other] - row[one]).slice(0, MAX_KEYS);
		if (!order.includes(this.key)) order[order.length - 1] = this.key;
		const items = order.map((key) => {
			const filled = make("i", { "aria-hidden": true });
			filled.style.width = `${100 * row[key]}%`;
			filled.style.background = CATEGORY_COLOURS[key % CATEGORY_COLOURS.length];
			return make(
				"li",
				{},
				button(bdi(keys[key]), () => this.onCell(this.row, key), {
					class: "plain key",
					"aria-pressed": key === this.key,
					"aria-label": `${keys[key]}: weight ${writeNumber(row[key], 4)}`,
				}),
				make("span", { class: "track" }, filled),
				make("span", { class: "number" }, writeNumber(row[key], 4)),
			);
		});
		return make(
			"div",
			{ class: "bars zoom-row" },
			make("h2", {}, bdi(queries[this.row]), " attends to"),
			make("ol", {}, items),
			row.length > order.length && quiet(`${row.length - order.length} more tokens with smaller weights`),
		);
	}

	#drawCell() {
		const scrubber = make("input", {
			type: "range",
			min: 0,
			max: ARITHMETIC.length - 1,
			step: 1,
			value: this.step,
			"aria-label": "Step of the arithmetic",
			"aria-valuetext": ARITHMETIC[this.step][0],
			oninput: (event) => this.move(Number(event.target.value) - this.step),
		});
		this.playButton = button(this.player.timer ? "Stop" : "Play", () => this.togglePlay());
		return make(
			"div",
			{ class: "zoom-cell" },
			make(
				"div",
				{ class: "row" },
				this.playButton,
				button("◀", () => this.move(-1), { "aria-label": "Previous step", disabled: this.step === 0 }),
				button("▶", () => this.move(1), { "aria-label": "Next step", disabled: this.step === ARITHMETIC.length - 1 }),
				scrubber,
			),
			make(
				"ol",
				{ class: "zoom-steps" },
				ARITHMETIC.map(([name, sentence], index) =>
					make(
						"li",
						{ "aria-current": index === this.step ? "step" : null, class: index > this.step ? "later" : null },
						make("b", {}, name),
						index === this.step && make("span", { class: "quiet" }, ` ${sentence}`),
						index <= this.step && this.#content(index),
					),
				),
			),
		);
	}

	/** The arithmetic of one step, with the numbers of this cell. */
	#content(index) {
		const { weights, masked, value, context, keys } = this.head;
		if (index === 2) return this.#maskLine(masked[this.row][this.key]);
		if (index === 4) {
			const weight = weights[this.row][this.key];
			return [
				vectorStrip(`value of ${keys[this.key]}`, value[this.key]),
				vectorStrip(
					`× ${writeNumber(weight, 4)}`,
					value[this.key].map((number) => number * weight),
					value[this.key],
				),
				vectorStrip("sum over all keys", context[this.row], value[this.key]),
			];
		}
		return make("pre", {}, this.#lines()[index === 3 ? "softmax" : index === 0 ? "score" : "scaled"]);
	}

	#maskLine(score) {
		const isHidden = !Number.isFinite(score);
		return make("pre", {}, isHidden ? "hidden: −∞, its weight will be 0" : "visible: nothing changes");
	}

	#lines() {
		const { query, key, masked, weights, scale, softcap } = this.head;
		const visible = indices(key.length).filter((at) => Number.isFinite(masked[this.row][at]));
		if (!visible.includes(this.key)) return { score: "hidden", scaled: "hidden", softmax: "weight = 0" };
		const { lines, weight } = explainWeight({
			query: query[this.row],
			keys: key,
			visible,
			keyIndex: this.key,
			scale,
			softcap,
			decimals: 4,
		});
		const given = weights[this.row][this.key];
		const note =
			Math.abs(weight - given) > 2e-3 ? `\nThe model's weight is ${writeNumber(given, 4)}: it adds a bias.` : "";
		return { score: lines[0], scaled: lines.slice(1, -2).join("\n"), softmax: lines.slice(-2).join("\n") + note };
	}
}

/**
 * The scale of the scores, from the numbers themselves: a visible score divided by its dot product.
 * @param {Record<string, number[][]>} matrices
 */
export function scaleOf({ query, key, masked }) {
	const width = query[0].length;
	let best = { size: 0, scale: width ** -0.5 };
	masked.forEach((row, at) =>
		row.forEach((score, to) => {
			if (!Number.isFinite(score)) return;
			const product = query[at].reduce((sum, number, index) => sum + number * key[to][index], 0);
			if (Math.abs(product) > best.size) best = { size: Math.abs(product), scale: score / product };
		}),
	);
	const usual = width ** -0.5;
	return Math.abs(best.scale - usual) < 1e-3 * usual ? usual : best.scale;
}

/** First numbers of a vector as coloured cells; colours by the range of `reference`. */
function vectorStrip(label, vector, reference = vector) {
	const limit = Math.max(...reference.map(Math.abs), 1e-9);
	const ramp = rampOf(true, false);
	const cells = vector.slice(0, 24).map((number) => {
		const cell = make("i", { title: writeNumber(number, 4) });
		cell.style.background = cssColour(ramp, fractionOf(number, { low: -limit, high: limit }));
		return cell;
	});
	const shown = vector.slice(0, 3).map((number) => writeNumber(number, 2));
	return make(
		"div",
		{ class: "strip" },
		make("span", {}, bdi(label)),
		make("span", { class: "cells", "aria-hidden": true }, cells),
		make("span", { class: "number" }, `${shown.join(", ")}, …`),
	);
}
