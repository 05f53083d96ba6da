// Board: the arithmetic of one number. Of an attention weight, it plays term by term beside the row of its query.

import { cssColour, fractionOf, rampOf, textColourOn, tokenColour } from "./colour.js";
import { bar, bdi, button, fill, isPhone, mainButton, make, prefersStills, quiet } from "./figure.js";
import { clamp, dot, indices, reachOf, sum, writeNumber } from "./numbers.js";
import { Player } from "./player.js";
import { calculateRow, inParentheses, isRight, linesOf, writeProducts } from "./weight.js";

const TICKS = 24; // positions of the scrubber within one step
const TICK_TIME = 120; // milliseconds per position while playing
const STILL_TIME = 3000; // milliseconds per step where motion is not wanted
const MAX_KEYS = 12; // keys of a row that are listed
const MAX_VALUES = 4; // value vectors that are drawn
const MAX_WRITTEN = 8; // numbers of a vector up to which they are written, too
const VISIBLE = 5e-3; // difference of two weights that is worth a look

const NAMES = ["q · k", "scale", "mask", "softmax", "· V", "gradient"];
export const STEPS = ["scores", "scaled", "masked", "weights", "context", "gradient"]; // of the formula
/**
 * `head`: query, key, value, masked, weights as rows of numbers, `bias` if there is one; divisor, softcap, sink and
 * additive as in `calculateRow`; `captions` of the formula's steps; queries and keys (pieces), title; `isOff`; in a
 * training step `gradient`, that of the context, and what the step is `about`; `origin(query, key)` says where
 * q and k come from; `lines` replace the text of steps.
 */
export class Board {
	head = null;
	row = 0;
	key = 0;
	step = 0;
	tick = TICKS; // how much of the step is shown

	/** `onCell(row, key)` and `onStep(step)` hear what is chosen; `onLeave()` shows what the board belongs to. */
	constructor(onCell, onStep, onLeave = null) {
		this.onCell = onCell;
		this.onStep = onStep;
		this.onLeave = onLeave;
		this.element = make("section.zoom", { "aria-label": "One head, step by step" });
		const isStill = prefersStills();
		this.player = new Player(
			() => (isStill ? this.move(1) : this.#seek(this.step * TICKS + this.tick + 1)),
			isStill ? STILL_TIME : TICK_TIME,
			(playing) => {
				this.element.classList.toggle("playing", playing);
				if (this.playButton) this.playButton.textContent = playing ? "Stop" : "Play";
			},
		);
	}

	write(...content) {
		this.player.stop();
		this.head = this.came = null;
		fill(this.element, content);
	}

	show(head, row, key, step = this.step) {
		const isBack = this.came?.row === row && this.came.key === key;
		if (isBack || head.weights !== this.head?.weights) this.came = null;
		[this.head, this.row, this.key] = [head, row, key];
		this.calculated = this.#calculate();
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

	/** What a chapter scrolls to: on a phone, half of which it covers, the step. */
	get current() {
		return (isPhone() && this.list?.querySelector("[aria-current]")) || this.element;
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
		const { came } = this;
		return make(
			"p.trail",
			this.onLeave && [button("↑ Picture", () => this.#leave(), { class: "text-button" }), " "],
			make(
				"span",
				parts.flatMap((part, index) => [index ? " › " : "", bdi(part)]),
			),
			came && [
				" ",
				button(`Back to ${queries[came.row]} → ${keys[came.key]}`, () => this.#goBack(), { class: "text-button" }),
			],
		);
	}

	#goBack() {
		if (this.came) this.onCell(this.came.row, this.came.key);
	}

	/** To the picture, which shows the cell that was left to see where a step matters. */
	#leave() {
		this.#goBack();
		this.onLeave();
	}

	#drawRow() {
		const { weights, keys, queries } = this.head;
		const row = weights[this.row];
		const order = this.#largest(MAX_KEYS);
		const seen = new Set(this.#visible());
		const items = order.map((key) =>
			make(
				"li",
				button(bdi(keys[key]), () => this.onCell(this.row, key), {
					class: "plain key",
					"aria-pressed": key === this.key,
					"aria-label": `${keys[key]}: weight ${writeNumber(row[key])}`,
				}),
				track(row[key], key),
				make("span.number", seen.has(key) ? writeNumber(row[key]) : "masked"),
			),
		);
		return make(
			"div.bars.zoom-row",
			make("h2", bdi(queries[this.row]), " looks at"),
			make("ol", items),
			row.length > order.length && quiet(`${row.length - order.length} more tokens with smaller weights`),
		);
	}

	/** Keys of this row with the largest weights, and the chosen one. */
	#largest(count) {
		const row = this.head.weights[this.row];
		const order = [...row.keys()].sort((one, other) => row[other] - row[one]).slice(0, count);
		return order.includes(this.key) ? order : [...order.slice(0, -1), this.key];
	}

	#controls() {
		const { keys, weights, isOff } = this.head;
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
			isOff && make("p", "This head is switched off: it hands on zeros instead of the sum. With it on, it would be:"),
			make("div.row", this.playButton, this.back, this.forward, this.scrubber),
		];
	}

	/** Draw the steps up to the current one; the picture of this step as far as it is played. */
	#draw() {
		const position = this.step * TICKS + this.tick;
		this.scrubber.value = String(position);
		this.element.classList.toggle("weighed", position >= 4 * TICKS);
		this.scrubber.setAttribute("aria-valuetext", NAMES[this.step]);
		this.back.toggleAttribute("disabled", this.step === 0);
		this.forward.toggleAttribute("disabled", this.step === this.last);
		const { isAdditive } = this.calculated;
		const isRightHere = isRight(this.calculated, this.key, this.head.weights[this.row][this.key]);
		const lines = { ...(isRightHere && this.#lines()), ...this.head.lines };
		fill(
			this.list,
			!isRightHere &&
				quiet("This weight cannot be shown step by step: an intervention changed it, or numbers are missing."),
			(isRightHere ? NAMES.slice(0, this.last + 1) : []).map((name, index) =>
				make(
					"li",
					{ "aria-current": index === this.step ? "step" : null, class: index > this.step ? "later" : null },
					button(isAdditive && index === 0 ? "v · tanh(q + k)" : name, () => this.#seek((index + 1) * TICKS), {
						class: "text-button",
					}),
					index === this.step && make("span.quiet", ` ${this.head.captions[STEPS[index]]}`),
					index === this.step && this.#picture(this.tick / TICKS),
					index <= this.step && lines[index] && make("pre", typographic(lines[index])),
				),
			),
		);
	}

	#picture(fraction) {
		return [this.#products, this.#scaling, this.#mask, this.#softmax, this.#values, this.#backward][this.step].call(
			this,
			fraction,
		);
	}

	#visible(row = this.row) {
		return indices(this.head.keys.length).filter((key) => Number.isFinite(this.head.masked[row][key]));
	}

	#calculate(row = this.row, changes = {}) {
		const { query, key, bias, divisor, softcap = null, sink = null, additive = [] } = this.head;
		const visible = this.#visible(row);
		const constants = { divisor, softcap, sink, additive, ...changes };
		return calculateRow({ query: query[row], keys: key, visible, bias: bias?.[row], ...constants });
	}

	/** Weights of a row if its scores were not divided, in the order of its visible keys. */
	#unscaled(row) {
		return this.#calculate(row, { divisor: 1 }).cells.map(({ weight }) => weight);
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
		const show = () => {
			this.came ??= { row: this.row, key: this.key };
			this.onCell(row, key);
		};
		return change > VISIBLE && button(name, show);
	}

	/** Query and key as coloured cells, below them their products, which add up to the score. */
	#products(fraction) {
		const { queries, keys } = this.head;
		const { query, isAdditive, additive, cells } = this.calculated;
		const products = cells.find((cell) => cell.key === this.key)?.terms;
		if (!products) return null;
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
		const counted = numShown < products.length ? `${numShown} of ${products.length}` : `all ${products.length}`;
		return make(
			"div.zoom-products",
			this.head.origin && make("p", this.head.origin(queries[this.row], keys[this.key])),
			vectorStrip(`q of ${queries[this.row]}`, query, { numLit: numShown }),
			vectorStrip(`k of ${keys[this.key]}`, this.head.key[this.key], { numLit: numShown }),
			isAdditive && vectorStrip("v", additive, { numLit: numShown }),
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
			make("p", `Sum of ${counted} products: `, make("b", write(sum(products.slice(0, numShown))))),
		);
	}

	/** Scores of the row as points on a line, which the scale draws together. */
	#scaling(fraction) {
		const { keys, weights } = this.head;
		const { cells, divisor } = this.calculated;
		const reach = reachOf(cells.map(({ score }) => score));
		const factor = 1 + (1 / divisor - 1) * fraction;
		const points = cells.map(({ key, score, scaled }) => {
			const at = fraction === 1 ? scaled : score * factor;
			const x = 300 + (280 * at) / reach;
			const isChosen = key === this.key;
			const name = `${keys[key]} ${write(at, 2)}`;
			const circle = make(
				"circle",
				{ cx: x, cy: 30, r: isChosen ? 8 : 5, fill: tokenColour(key) },
				make("title", name),
			);
			return { x, circle, name: isChosen ? name : keys[key], isChosen };
		});
		/** @type {typeof points} the dots with room for a name, the chosen one first */
		const named = [];
		for (const point of points.toSorted((one, other) => Number(other.isChosen) - Number(one.isChosen)))
			if (named.every(({ x, name }) => Math.abs(x - point.x) > 5 * (name.length + point.name.length)))
				named.push(point);
		const range = (name) => {
			const numbers = cells.map((cell) => cell[name]);
			return `${write(Math.min(...numbers), 1)} to ${write(Math.max(...numbers), 1)}`;
		};
		const without = this.#unscaled(this.row)[cells.findIndex(({ key }) => key === this.key)];
		const weight = weights[this.row][this.key];
		const isClear = Math.abs(without - weight) >= VISIBLE;
		const effect = isClear
			? `Without the scale, this weight would be ${writeNumber(without)} instead of ${writeNumber(weight)}.`
			: "Here they are so far apart that the weights are the same without the scale.";
		const changesOf = (row) => {
			const unscaled = this.#unscaled(row);
			return (key, at) => unscaled[at] - weights[row][key];
		};
		const isScaled = divisor !== 1 && without !== undefined;
		return [
			make(
				"svg",
				{ viewBox: "0 0 600 58", class: "scores", "aria-hidden": true },
				make("path.axis", { d: "M10 30H590M300 22V38M20 26V34M580 26V34" }),
				[-reach, 0, reach].map((number, at) =>
					make("text", { x: 10 + 290 * at, y: 54, "text-anchor": ["start", "middle", "end"][at] }, write(number, 1)),
				),
				points.map(({ circle }) => circle),
				named.map(({ x, name }) => make("text", { x, y: 14, "text-anchor": "middle" }, name)),
			),
			make("p", `The scores of this row: ${range("score")} before, ${range("scaled")} after. `, isScaled && effect),
			isScaled && !isClear && this.#seeWhere(changesOf),
		];
	}

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

	/** Scores of the row, their powers of e, and the weights. */
	#softmax(fraction) {
		const { masked, weights } = this.head;
		const { cells, largest } = this.calculated;
		const [scores, row] = [masked[this.row], weights[this.row]];
		const powers = indices(row.length).map((key) => cells.find((cell) => cell.key === key)?.power ?? 0);
		const reach = reachOf(scores.filter(Number.isFinite));
		const isOneKey = cells.every(({ weight }) => weight < VISIBLE || weight > 1 - VISIBLE);
		return [
			this.#bars(
				{ title: "score", numbers: scores, length: (score) => (score ?? 0) / reach, decimals: 2, isSigned: true },
				{ title: `e^(score − ${typographic(inParentheses(largest, 2))})`, numbers: powers, fraction },
				{ title: "weight", numbers: row, fraction },
			),
			make("p", "The largest score is subtracted from all: the weights stay the same, and no power gets too large."),
			isOneKey && this.#seeWhere((of) => (key) => 0.5 - Math.abs(0.5 - weights[of][key])),
		];
	}

	/** Weights of the row beside the gradients of their scores. */
	#backward(fraction) {
		const gradients = this.#gradients();
		const scores = gradients.map(({ score }) => score);
		const reach = reachOf(scores);
		return [
			this.#bars(
				{ title: "weight", numbers: this.head.weights[this.row] },
				{ title: "gradient", numbers: scores, length: (score) => score / reach, fraction, isSigned: true },
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

	/**
	 * Numbers of the keys with the largest weights, as bars; those of either sign begin in the middle. A column that is
	 * played up to a `fraction` has no numbers before its end.
	 */
	#bars(...columns) {
		const shown = this.#largest(6);
		const others = this.#visible().filter((key) => !shown.includes(key));
		const together = columns
			.filter(({ isSigned, fraction = 1 }) => !isSigned && fraction === 1)
			.map(({ title, numbers }) => `${title} ${write(sum(others.map((key) => numbers[key])))}`);
		return make(
			`div.zoom-softmax.of-${columns.length}`,
			make("b"),
			columns.map(({ title }) => make("b", title)),
			shown.map((key) => [
				make("span", { class: key === this.key ? "chosen" : "of-key" }, bdi(this.head.keys[key])),
				columns.map(({ numbers, length = Number, decimals = 4, isSigned, fraction = 1 }) => [
					track(length(numbers[key]) * fraction, key, isSigned),
					make("span.number", fraction === 1 && write(numbers[key], decimals)),
				]),
			]),
			others.length > 0 &&
				together.length > 0 &&
				make("span.quiet", `${others.length} more, together: ${together.join(", ")}`),
		);
	}

	/** The value vectors with the largest weights, and the sum over all keys. */
	#values(fraction) {
		const { keys, value, weights } = this.head;
		const row = weights[this.row];
		const order = this.#largest(MAX_VALUES).filter((key) => row[key] > 5e-4);
		const total = value[0].map((_, at) => sum(row.map((weight, key) => weight * value[key][at])));
		const reference = [...order.map((key) => value[key]), total].flat();
		const numShown = Math.ceil(fraction * order.length);
		return [
			order.slice(0, numShown).map((key) =>
				vectorStrip(
					`${writeNumber(row[key], 3)} × v of ${keys[key]}`,
					value[key].map((number) => number * row[key]),
					{ reference },
				),
			),
			fraction === 1 && vectorStrip("sum over all keys", total, { reference }),
		];
	}

	/** The arithmetic of each step as text, with the numbers of this cell. */
	#lines() {
		const { value, weights, gradient } = this.head;
		if (!this.#visible().includes(this.key))
			return ["hidden", "hidden", "hidden: −∞, its weight will be 0", "weight = 0"];
		const lines = linesOf(this.calculated, this.key);
		const given = weights[this.row][this.key];
		const shown = [
			lines.score,
			lines.scaled,
			lines.bias ?? "visible: nothing changes",
			`${lines.power}\n${lines.weight}`,
		];
		if (!gradient) return shown;
		const back = this.#gradients()[this.key];
		const [ofWeight, mean, score] = [back.weight, back.mean, back.score].map((number) => writeNumber(number));
		const effect = isFlat(back)
			? "hardly changes with this score"
			: back.score < 0
				? "falls if this score rises"
				: "falls if this score falls";
		const products = writeProducts(gradient[this.row], value[this.key]);
		const distance = `(${ofWeight} − ${inParentheses(back.mean)})`;
		const gradientLines = [
			`of the weight: gradient of the sum · v = ${products} = ${ofWeight}`,
			`of the score: ${writeNumber(given)} · ${distance} = ${score}, where ${mean} is the weighted mean of the row`,
			`The loss ${effect}.`,
		];
		return [...shown, null, gradientLines.join("\n")];
	}
}

const isFlat = ({ score }) => Math.abs(score) < VISIBLE;

/** A number as a sentence has it, with a minus sign. */
const write = (number, decimals = 4) => typographic(writeNumber(number, decimals));

const typographic = (text) => text.replace(/-(?=\d)/g, "−");

/** A bar in the colour of a token; a signed one begins in the middle. */
function track(fraction, token, isSigned = false) {
	const shown = bar(isSigned ? Math.abs(fraction) / 2 : fraction, null, tokenColour(token));
	if (isSigned) /** @type {HTMLElement} */ (shown.firstChild).style.marginLeft = `${50 + 50 * Math.min(fraction, 0)}%`;
	return shown;
}

/** A vector as coloured cells, by the range of `reference`; cells after `numLit` are pale. */
function vectorStrip(label, vector, { reference = vector, numLit = vector.length } = {}) {
	const limit = reachOf(reference);
	const ramp = rampOf(true, false);
	const cells = vector.map((number, index) => {
		const fraction = fractionOf(number, { low: -limit, high: limit });
		const text = vector.length <= MAX_WRITTEN && Number(number.toFixed(3));
		const cell = make("i", { title: writeNumber(number), class: index < numLit ? null : "later" }, text);
		cell.style.background = cssColour(ramp, fraction);
		cell.style.color = textColourOn(ramp, fraction);
		return cell;
	});
	return make("div.strip", make("span", bdi(label)), make("span.cells", { "aria-hidden": true }, cells));
}
