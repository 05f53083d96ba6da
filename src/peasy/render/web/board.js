// Board: the arithmetic of one number. Of an attention weight, it plays term by term beside the row of its query.

import { cssColour, fractionOf, rampOf, textColourOn, tokenColour } from "./colour.js";
import { bar, bdi, button, fill, mainButton, make, prefersStills, quiet } from "./figure.js";
import { clamp, dot, indices, reachOf, sum, writeNumber } from "./numbers.js";
import { Player } from "./player.js";
import { explainWeight, parenthesize, writeProducts } from "./weight.js";

const TICKS = 24; // positions of the scrubber within one step
const TICK_TIME = 70; // milliseconds per position while playing
const STILL_TIME = 1600; // milliseconds per step where motion is not wanted
const MAX_KEYS = 12; // keys of a row that are listed
const MAX_VALUES = 4; // value vectors that are drawn
const MAX_NUMBERS = 64; // numbers of a vector that are drawn
const MAX_WRITTEN = 8; // numbers of a vector up to which they are written, too
const VISIBLE = 5e-3; // difference of two weights that is worth a look

const ARITHMETIC = [
	["q · k", "How well does this key match this query? Multiply number by number, then add."],
	[
		"scale",
		"Divide by √dₖ (each vector has dₖ numbers): long vectors give large scores, and the softmax would give almost " +
			"all weight to one key.",
	],
	["mask", "A token may not look at what comes later; what it may see keeps its score."],
	["softmax", "e to the power of each score, divided by the sum of the row: the weights add up to 1."],
	["· V", "Each value vector times its weight, added up: what this head hands on."],
	["gradient", "The way back: how the loss changes with each score. All gradients are in thousandths."],
];
const NO_MASK = "Here every token may look at every other one: all scores stay as they are.";

/**
 * `head`: query, key, value, masked, weights, context as rows of numbers; queries and keys (pieces), title; `isOff`;
 * in a training step `gradient`, that of the context, and what the step is `about`; `lines` replace the text of steps.
 */
export class Board {
	/** @type {Record<string, any> | null} */
	head = null;
	row = 0;
	key = 0;
	step = 0;
	tick = TICKS; // how much of the step is shown

	constructor(onCell, onStep) {
		this.onCell = onCell;
		this.onStep = onStep;
		this.element = make("section.zoom", { "aria-label": "One head, step by step" });
		const isStill = prefersStills();
		this.player = new Player(
			() => (isStill ? this.move(1) : this.#seek(this.step * TICKS + this.tick + 1)),
			isStill ? STILL_TIME : TICK_TIME,
			(playing) => this.playButton && (this.playButton.textContent = playing ? "Stop" : "Play"),
		);
	}

	/** Show something else than the steps of a weight. */
	write(...content) {
		this.player.stop();
		this.head = null;
		fill(this.element, content);
	}

	show(head, row, key, step = this.step) {
		[this.head, this.row, this.key] = [{ ...head, scale: scaleOf(head) }, row, key];
		this.last = head.gradient ? 5 : 4;
		this.step = clamp(step, 0, this.last);
		if (!this.player.timer) this.tick = TICKS;
		this.list = make("ol.zoom-steps");
		fill(
			this.element,
			this.#trail(),
			make("div.zoom-parts", this.#drawRow(), make("div", this.#controls(), this.list)),
		);
		this.#draw();
	}

	/** Show the next step of the arithmetic; false after the last. */
	move(by) {
		const next = this.step + by;
		return Boolean(this.head) && next >= 0 && next <= this.last && this.#seek((next + 1) * TICKS);
	}

	/** Show a position of the scrubber; false at the end. */
	#seek(position) {
		const before = this.step;
		this.step = clamp(Math.ceil(position / TICKS) - 1, 0, this.last);
		this.tick = Math.min(position - this.step * TICKS, TICKS);
		this.#draw();
		if (this.step !== before) this.onStep(this.step);
		return position < (this.last + 1) * TICKS;
	}

	togglePlay() {
		if (!this.head) return;
		if (!this.player.timer && this.tick === TICKS && [0, this.last].includes(this.step)) this.#seek(0);
		this.player.toggle();
	}

	#trail() {
		const { title, queries, keys } = this.head;
		const parts = [...title, queries[this.row], keys[this.key]];
		return make(
			"p.trail",
			parts.flatMap((part, index) => [index ? " › " : "", bdi(part)]),
		);
	}

	#drawRow() {
		const { weights, keys, queries } = this.head;
		const row = weights[this.row];
		const order = this.#largest(MAX_KEYS);
		if (!order.includes(this.key)) order[order.length - 1] = this.key;
		const items = order.map((key) =>
			make(
				"li",
				button(bdi(keys[key]), () => this.onCell(this.row, key), {
					class: "plain key",
					"aria-pressed": key === this.key,
					"aria-label": `${keys[key]}: weight ${writeNumber(row[key])}`,
				}),
				track(row[key], key),
				make("span.number", writeNumber(row[key])),
			),
		);
		return make(
			"div.bars.zoom-row",
			make("h2", bdi(queries[this.row]), " looks at"),
			make("ol", items),
			row.length > order.length && quiet(`${row.length - order.length} more tokens with smaller weights`),
		);
	}

	/** Keys of this row with the largest weights. */
	#largest(count) {
		const row = this.head.weights[this.row];
		return [...row.keys()].sort((one, other) => row[other] - row[one]).slice(0, count);
	}

	#controls() {
		const { keys, weights } = this.head;
		this.scrubber = make("input", {
			type: "range",
			min: 0,
			max: (this.last + 1) * TICKS,
			step: 1,
			"aria-label": "Step of the arithmetic",
			oninput: (event) => this.#seek(Number(event.target.value)),
		});
		this.playButton = mainButton(this.player.timer ? "Stop" : "Play", () => this.togglePlay());
		this.back = button("◀", () => this.move(-1), { "aria-label": "Previous step" });
		this.forward = button("▶", () => this.move(1), { "aria-label": "Next step" });
		const weight = writeNumber(weights[this.row][this.key]);
		return [
			make("h2", "How the weight ", weight, " of ", bdi(keys[this.key]), " is calculated"),
			make("div.row", this.playButton, this.back, this.forward, this.scrubber),
		];
	}

	/** Draw the steps up to the current one; the picture of this step as far as it is played. */
	#draw() {
		this.scrubber.value = String(this.step * TICKS + this.tick);
		this.scrubber.setAttribute("aria-valuetext", ARITHMETIC[this.step][0]);
		this.back.toggleAttribute("disabled", this.step === 0);
		this.forward.toggleAttribute("disabled", this.step === this.last);
		const lines = { ...this.#lines(), ...this.head.lines };
		const isOpen = this.head.masked.every((row) => row.every(Number.isFinite));
		fill(
			this.list,
			ARITHMETIC.slice(0, this.last + 1).map(([name, sentence], index) =>
				make(
					"li",
					{ "aria-current": index === this.step ? "step" : null, class: index > this.step ? "later" : null },
					button(name, () => this.#seek((index + 1) * TICKS), { class: "text-button" }),
					index === this.step && make("span.quiet", ` ${index === 2 && isOpen ? NO_MASK : sentence}`),
					index === this.step && this.#picture(this.tick / TICKS),
					index <= this.step && lines[index] && make("pre", lines[index]),
				),
			),
		);
	}

	/** Picture of the current step, of which `fraction` is shown. */
	#picture(fraction) {
		return [this.#products, this.#scaling, this.#mask, this.#softmax, this.#values, this.#backward][this.step].call(
			this,
			fraction,
		);
	}

	#visible(row = this.row) {
		return indices(this.head.keys.length).filter((key) => Number.isFinite(this.head.masked[row][key]));
	}

	#scores(row = this.row) {
		return this.#visible(row).map((key) => dot(this.head.query[row], this.head.key[key]));
	}

	/** A button to the cell of this head whose `changesOf(row)(key, position of the key among the visible)` is largest. */
	#seeWhere(changesOf) {
		const { queries, keys } = this.head;
		const cells = queries.flatMap((_, row) => {
			const changeOf = changesOf(row);
			return this.#visible(row).map((key, at) => ({ row, key, change: Math.abs(changeOf(key, at)) }));
		});
		const { row, key, change } = cells.reduce((best, one) => (one.change > best.change ? one : best));
		const name = `See where it matters: ${queries[row]} → ${keys[key]}`;
		return change > VISIBLE && button(name, () => this.onCell(row, key));
	}

	/** Query and key as coloured cells, below them their products, which add up to the score. */
	#products(fraction) {
		const { queries, keys } = this.head;
		const [query, key] = [this.head.query[this.row], this.head.key[this.key]];
		const products = query.map((number, index) => number * key[index]).slice(0, MAX_NUMBERS);
		const numShown = Math.round(fraction * products.length);
		const largest = reachOf(products);
		const bars = products.map((product, index) => {
			const height = (26 * Math.abs(product)) / largest;
			return make("rect", {
				class: `${product < 0 ? "minus" : "more"}${index < numShown ? "" : " later"}`,
				x: index * 8,
				y: product < 0 ? 28 : 28 - height,
				width: 7,
				height: Math.max(height, 0.6),
			});
		});
		const counted = numShown < products.length ? `${numShown} of ${products.length} products` : "all products";
		return make(
			"div.zoom-products",
			vectorStrip(`q of ${queries[this.row]}`, query, { numLit: numShown }),
			vectorStrip(`k of ${keys[this.key]}`, key, { numLit: numShown }),
			make(
				"div.strip",
				make("span", "products"),
				make(
					"svg",
					{
						viewBox: `0 0 ${products.length * 8 - 1} 56`,
						preserveAspectRatio: "none",
						class: "products",
						"aria-hidden": true,
					},
					bars,
				),
			),
			make("p", `Sum of ${counted}: `, make("b", writeNumber(sum(products.slice(0, numShown)), 4))),
		);
	}

	/** Scores of the row as points on a line, which the scale draws together. */
	#scaling(fraction) {
		const { keys, scale, weights } = this.head;
		const [visible, scores] = [this.#visible(), this.#scores()];
		const reach = reachOf(scores);
		const factor = 1 + (scale - 1) * fraction;
		const points = scores.map((score, index) =>
			make(
				"circle",
				{
					cx: 300 + (280 * score * factor) / reach,
					cy: 16,
					r: visible[index] === this.key ? 8 : 5,
					fill: tokenColour(visible[index]),
				},
				make("title", `${keys[visible[index]]}: ${writeNumber(score * factor, 2)}`),
			),
		);
		const [low, high] = [Math.min(...scores) * factor, Math.max(...scores) * factor];
		const without = softmax(scores)[visible.indexOf(this.key)];
		const weight = weights[this.row][this.key];
		const isClear = Math.abs(without - weight) >= VISIBLE;
		const effect = isClear
			? `Without the scale, this weight would be ${writeNumber(without)} instead of ${writeNumber(weight)}.`
			: "Here they are so far apart that the weights are the same without the scale.";
		const changesOf = (row) => {
			const unscaled = softmax(this.#scores(row));
			return (key, at) => unscaled[at] - weights[row][key];
		};
		return [
			make(
				"svg",
				{ viewBox: "0 0 600 32", class: "scores", "aria-hidden": true },
				make("path.axis", { d: "M10 16H590M300 8V24" }),
				points,
			),
			make(
				"p",
				`The scores of this row reach from ${writeNumber(low, 1)} to ${writeNumber(high, 1)}. `,
				without !== undefined && effect,
			),
			!isClear && fraction === 1 && this.#seeWhere(changesOf),
		];
	}

	/** Which keys the query may see. */
	#mask(fraction) {
		const visible = new Set(this.#visible());
		return make(
			"p.zoom-mask",
			this.head.keys.map((piece, key) => {
				const isHidden = !visible.has(key) && fraction > 0.5;
				return [make("span", { class: isHidden ? "hidden-key" : key === this.key ? "chosen" : null }, bdi(piece)), " "];
			}),
		);
	}

	/** Scores of the row beside their weights. */
	#softmax(fraction) {
		const { masked, weights } = this.head;
		const [scores, row] = [masked[this.row], weights[this.row]];
		const seen = scores.filter(Number.isFinite);
		const [low, high] = [Math.min(...seen), Math.max(...seen)];
		const length = (score) => (Number.isFinite(score) ? (score - low) / (high - low || 1) : 0);
		return this.#bars(
			{ title: "score", numbers: scores, length, decimals: 2 },
			{ title: "weight", numbers: row, length: (weight) => weight * fraction },
		);
	}

	/** Weights of the row beside the gradients of their scores. */
	#backward(fraction) {
		const gradients = this.#gradients();
		const reach = reachOf(gradients.map(({ score }) => score)) / fraction;
		return [
			this.#bars(
				{ title: "weight", numbers: this.head.weights[this.row], length: (weight) => weight },
				{ title: "gradient", numbers: gradients.map(({ score }) => score), length: (score) => Math.abs(score) / reach },
			),
			make("p", this.head.about),
			isFlat(gradients[this.key]) &&
				this.#seeWhere((row) => {
					const ofRow = this.#gradients(row);
					return (key) => ofRow[key].score;
				}),
		];
	}

	/** Of each key of a row that can be seen: the gradients of its weight and of its scaled score. */
	#gradients(row = this.row) {
		const { gradient, value, weights } = this.head;
		const ofWeights = value.map((vector) => dot(gradient[row], vector));
		const mean = dot(weights[row], ofWeights);
		return ofWeights.map((weight, key) => ({ weight, mean, score: weights[row][key] * (weight - mean) }));
	}

	/** Two numbers of the keys with the largest weights, as bars. */
	#bars(...columns) {
		const order = this.#largest(6);
		if (!order.includes(this.key)) order[order.length - 1] = this.key;
		return make(
			"div.zoom-softmax",
			make("b"),
			columns.map(({ title }) => [make("b", title), make("b")]),
			order.map((key) => [
				make("span", { class: key === this.key ? "chosen" : null }, bdi(this.head.keys[key])),
				columns.map(({ numbers, length, decimals = 4 }) => [
					track(length(numbers[key]), key),
					make("span.number", writeNumber(numbers[key], decimals)),
				]),
			]),
		);
	}

	/** The value vectors with the largest weights, and the sum over all keys. */
	#values(fraction) {
		const { keys, value, context, isOff } = this.head;
		const row = this.head.weights[this.row];
		const order = this.#largest(MAX_VALUES).filter((key) => row[key] > 5e-4);
		const reference = [...order.map((key) => value[key]), context[this.row]].flat();
		const numShown = Math.ceil(fraction * order.length);
		return [
			order.slice(0, numShown).map((key) =>
				vectorStrip(
					`${writeNumber(row[key], 3)} × v of ${keys[key]}`,
					value[key].map((number) => number * row[key]),
					{ reference },
				),
			),
			fraction === 1 && vectorStrip("sum over all keys", context[this.row], { reference }),
			isOff && make("p", "This head is switched off: it hands on zeros instead of the sum."),
		];
	}

	/** The arithmetic of each step as text, with the numbers of this cell. */
	#lines() {
		const { query, key, value, masked, weights, scale, gradient } = this.head;
		const visible = this.#visible();
		const isHidden = !Number.isFinite(masked[this.row][this.key]);
		const mask = isHidden ? "hidden: −∞, its weight will be 0" : "visible: nothing changes";
		if (isHidden) return ["hidden", "hidden", mask, "weight = 0"];
		const { lines, weight } = explainWeight({
			query: query[this.row],
			keys: key,
			visible,
			keyIndex: this.key,
			scale,
			decimals: 4,
		});
		const given = weights[this.row][this.key];
		const note =
			Math.abs(weight - given) > 2e-3 ? `\nThe model's weight is ${writeNumber(given)}: it adds a bias.` : "";
		const shown = [lines[0], lines.slice(1, -2).join("\n"), mask, lines.slice(-2).join("\n") + note];
		if (!gradient) return shown;
		const back = this.#gradients()[this.key];
		const [ofWeight, mean, score] = [back.weight, back.mean, back.score].map((number) => writeNumber(number));
		const effect = isFlat(back)
			? "hardly changes with this score"
			: back.score < 0
				? "falls if this score rises"
				: "falls if this score falls";
		const products = writeProducts(gradient[this.row], value[this.key], writeNumber);
		const distance = `(${ofWeight} − ${parenthesize(back.mean, writeNumber)})`;
		const gradientLines = [
			`of the weight: gradient of the sum · v = ${products} = ${ofWeight}`,
			`of the score: ${writeNumber(given)} · ${distance} = ${score}, where ${mean} is the weighted mean of the row`,
			`The loss ${effect}.`,
		];
		return [...shown, null, gradientLines.join("\n")];
	}
}

const isFlat = ({ score }) => Math.abs(score) < VISIBLE;

function softmax(scores) {
	const largest = Math.max(...scores);
	const powers = scores.map((score) => Math.exp(score - largest));
	return powers.map((power) => power / sum(powers));
}

/** A bar in the colour of a token. */
const track = (fraction, token) => bar(fraction, null, tokenColour(token));

/**
 * The scale of the scores, from the numbers themselves: a visible score divided by its dot product.
 * @param {Record<string, number[][]>} matrices
 */
function scaleOf({ query, key, masked }) {
	const width = query[0].length;
	let best = { size: 0, scale: width ** -0.5 };
	masked.forEach((row, at) =>
		row.forEach((score, to) => {
			if (!Number.isFinite(score)) return;
			const product = dot(query[at], key[to]);
			if (Math.abs(product) > best.size) best = { size: Math.abs(product), scale: score / product };
		}),
	);
	const usual = width ** -0.5;
	return Math.abs(best.scale - usual) < 1e-3 * usual ? usual : best.scale;
}

/**
 * First numbers of a vector as coloured cells, by the range of `reference`; cells after `numLit` are pale.
 * @param {string} label
 * @param {number[]} vector
 * @param {{ reference?: number[], numLit?: number }} [options]
 */
function vectorStrip(label, vector, { reference = vector, numLit = vector.length } = {}) {
	const limit = reachOf(reference);
	const ramp = rampOf(true, false);
	const cells = vector.slice(0, MAX_NUMBERS).map((number, index) => {
		const fraction = fractionOf(number, { low: -limit, high: limit });
		const text = vector.length <= MAX_WRITTEN && Number(number.toFixed(3));
		const cell = make("i", { title: writeNumber(number), class: index < numLit ? null : "later" }, text);
		cell.style.background = cssColour(ramp, fraction);
		cell.style.color = textColourOn(ramp, fraction);
		return cell;
	});
	return make("div.strip", make("span", bdi(label)), make("span.cells", { "aria-hidden": true }, cells));
}
