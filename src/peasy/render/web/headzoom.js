// One head opened: the row of the chosen token, and the arithmetic of one weight, played term by term.

import { cssColour, fractionOf, rampOf, tokenColour } from "./colour.js";
import { bar, bdi, button, fill, mainButton, make, prefersStills, quiet } from "./figure.js";
import { dot, indices, reachOf, sum, writeNumber } from "./numbers.js";
import { Player } from "./player.js";
import { explainWeight } from "./weight.js";

const TICKS = 24; // positions of the scrubber within one step
const TICK_TIME = 70; // milliseconds per position while playing
const STILL_TIME = 1600; // milliseconds per step where motion is not wanted
const MAX_KEYS = 12; // keys of a row that are listed
const MAX_VALUES = 4; // value vectors that are drawn
const MAX_NUMBERS = 64; // numbers of a vector that are drawn

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
];
const LAST = ARITHMETIC.length - 1;
const NO_MASK = "Here every token may look at every other one: all scores stay as they are.";

/** `head`: query, key, value, masked, weights, context as rows of numbers; queries and keys (pieces), title. */
export class HeadZoom {
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

	close() {
		this.player.stop();
	}

	show(head, row, key, step = this.step) {
		[this.head, this.row, this.key] = [{ ...head, scale: scaleOf(head) }, row, key];
		[this.step, this.tick] = [Math.min(Math.max(step, 0), LAST), TICKS];
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
		return Boolean(this.head) && next >= 0 && next <= LAST && this.#seek((next + 1) * TICKS);
	}

	/** Show a position of the scrubber; false at the end. */
	#seek(position) {
		const before = this.step;
		this.step = Math.min(Math.max(Math.ceil(position / TICKS) - 1, 0), LAST);
		this.tick = Math.min(position - this.step * TICKS, TICKS);
		this.#draw();
		if (this.step !== before) this.onStep(this.step);
		return position < ARITHMETIC.length * TICKS;
	}

	togglePlay() {
		if (!this.head) return;
		if (!this.player.timer && this.tick === TICKS && [0, LAST].includes(this.step)) this.#seek(0);
		this.player.toggle();
	}

	#trail() {
		const { title, queries, keys } = this.head;
		const parts = ["model", ...title, queries[this.row], keys[this.key]];
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
					"aria-label": `${keys[key]}: weight ${writeNumber(row[key], 4)}`,
				}),
				track(row[key], key),
				make("span.number", writeNumber(row[key], 4)),
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
			max: ARITHMETIC.length * TICKS,
			step: 1,
			"aria-label": "Step of the arithmetic",
			oninput: (event) => this.#seek(Number(event.target.value)),
		});
		this.playButton = mainButton(this.player.timer ? "Stop" : "Play", () => this.togglePlay());
		this.back = button("◀", () => this.move(-1), { "aria-label": "Previous step" });
		this.forward = button("▶", () => this.move(1), { "aria-label": "Next step" });
		const weight = writeNumber(weights[this.row][this.key], 4);
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
		this.forward.toggleAttribute("disabled", this.step === LAST);
		const lines = this.#lines();
		const isOpen = this.head.masked.every((row) => row.every(Number.isFinite));
		fill(
			this.list,
			ARITHMETIC.map(([name, sentence], index) =>
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
		return [this.#products, this.#scaling, this.#mask, this.#softmax, this.#values][this.step].call(this, fraction);
	}

	#visible(row = this.row) {
		return indices(this.head.keys.length).filter((key) => Number.isFinite(this.head.masked[row][key]));
	}

	#scores(row = this.row) {
		return this.#visible(row).map((key) => dot(this.head.query[row], this.head.key[key]));
	}

	/** The cell of this head whose weight the scale changes most. */
	#clearest() {
		const changes = this.head.weights.flatMap((weights, row) => {
			const without = softmax(this.#scores(row));
			return this.#visible(row).map((key, at) => ({ row, key, change: Math.abs(without[at] - weights[key]) }));
		});
		return changes.reduce((best, one) => (one.change > best.change ? one : best));
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
		const { queries, keys, scale } = this.head;
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
		const weight = this.head.weights[this.row][this.key];
		const isClear = Math.abs(without - weight) >= 5e-3;
		const effect = isClear
			? `Without the scale, this weight would be ${writeNumber(without, 4)} instead of ${writeNumber(weight, 4)}.`
			: "Here they are so far apart that the weights are the same without the scale.";
		const { row, key, change } = isClear ? { change: 0 } : (this.head.clearest ??= this.#clearest());
		const name = () => `See where it matters: ${queries[row]} → ${keys[key]}`;
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
			change > 5e-3 && button(name(), () => this.onCell(row, key)),
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
		const { keys, masked, weights } = this.head;
		const scores = this.#visible().map((key) => masked[this.row][key]);
		const [low, high] = [Math.min(...scores), Math.max(...scores)];
		const order = this.#largest(6);
		if (!order.includes(this.key)) order[order.length - 1] = this.key;
		return make(
			"div.zoom-softmax",
			["", "score", "", "weight", ""].map((name) => make("b", name)),
			order.map((key) => {
				const [score, weight] = [masked[this.row][key], weights[this.row][key]];
				const length = Number.isFinite(score) ? (score - low) / (high - low || 1) : 0;
				return [
					make("span", { class: key === this.key ? "chosen" : null }, bdi(keys[key])),
					track(length, key),
					make("span.number", Number.isFinite(score) ? writeNumber(score, 2) : "−∞"),
					track(weight * fraction, key),
					make("span.number", writeNumber(weight, 4)),
				];
			}),
		);
	}

	/** The value vectors with the largest weights, and the sum over all keys. */
	#values(fraction) {
		const { keys, value, context } = this.head;
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
		];
	}

	/** The arithmetic of each step as text, with the numbers of this cell. */
	#lines() {
		const { query, key, masked, weights, scale } = this.head;
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
			Math.abs(weight - given) > 2e-3 ? `\nThe model's weight is ${writeNumber(given, 4)}: it adds a bias.` : "";
		return [lines[0], lines.slice(1, -2).join("\n"), mask, lines.slice(-2).join("\n") + note];
	}
}

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
		const cell = make("i", { title: writeNumber(number, 4), class: index < numLit ? null : "later" });
		cell.style.background = cssColour(ramp, fractionOf(number, { low: -limit, high: limit }));
		return cell;
	});
	return make("div.strip", make("span", bdi(label)), make("span.cells", { "aria-hidden": true }, cells));
}
