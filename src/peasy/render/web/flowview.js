// Picture of a forward pass with its story: the flow, a caption of measured numbers, one head opened, heads off.

import { Board } from "./board.js";
import { bar, bdi, button, byteNote, caveatLine, fill, isPhone, make, prefersStills, quiet } from "./figure.js";
import { ModelFlow } from "./modelflow.js";
import { headKeys } from "./moves.js";
import { argmax, clamp, writeNumber } from "./numbers.js";

const CROSS = "cross_attention";

/** Name of a head in requests and data. */
export const headName = ({ stack, layer, part, head }) => `${stack}.${layer}.${part}.${head}`;

/** Heads of a URL: "2.3" is head 3 of layer 2; "2.3x" attends to the encoder. */
export function readHeads(text) {
	return [...(text ?? "").matchAll(/(\d+)\.(\d+)(x?)/g)].map(([, layer, head, isCross]) => ({
		...(isCross && { part: CROSS }),
		layer: Number(layer),
		head: Number(head),
	}));
}

const shortName = ({ part, layer, head }) => `${layer}.${head}${part === CROSS ? "x" : ""}`;

export function writeHeads(heads) {
	return heads.map(shortName).join(",");
}

export function ablations(heads) {
	return heads.map((head) => ({ kind: "zero", ...head }));
}

/** Switch one of the heads that are off on, or another one off, too. */
export function toggled(heads, place) {
	const name = shortName(place);
	const others = heads.filter((one) => shortName(one) !== name);
	return others.length < heads.length ? others : [...heads, ...readHeads(name)];
}

export class FlowView {
	head = null;
	base = null;
	off = [];
	open = null;
	pass = null;
	cached = undefined; // rows that come from the KV cache
	warmed = null; // next tokens at another temperature
	similar = null; // how near an encoder's sentence is to others: title, items, caption
	note = ""; // instead of the caption
	row = 0;
	key = null;
	step = 0;

	/**
	 * `source`: `pass(off)` loads the forward pass without some heads and calls `show`; `head(place)` gives the numbers
	 * of a head, or null; `onChange(changes, push)` hears what was chosen; `rail()` gives more controls;
	 * `nextToken(piece)` adds a token, if that is possible; `glossaryLink(term)` links a term.
	 */
	constructor(source) {
		this.source = source;
		this.caption = make("p.story", { role: "status" }, "Loading the model …");
		this.answer = make("div.bars.answer");
		this.flow = new ModelFlow(
			{
				token: (stack, row) => this.chooseToken(stack, row),
				head: (stack, layer, part, head) => this.openHead({ stack, layer, part, head }),
				layer: (stack, layer) => this.openLayer(stack, layer),
				cell: ({ row, key }) => {
					this.chooseCell(row, key);
					this.showArithmetic();
				},
			},
			this.answer,
		);
		this.board = new Board(
			(row, key) => this.chooseCell(row, key),
			(step) => {
				this.step = step;
				source.onChange({ s: step || null });
			},
			() => scrollTo(this.element),
		);
		this.rail = make("div.card.flow-rail");
		this.switches = make("div");
		this.legend = make("ul.flow-legend", { "aria-label": "Legend" });
		this.element = make(
			"div.home-main",
			make("div.story-row", this.caption, this.switches),
			this.flow.element,
			this.rail,
			this.legend,
			this.board.element,
		);
	}

	/** Show a pass; `base` is the one with all heads on, `chosen` (q, k, s) what the URL says. */
	show(pass, base, chosen = /** @type {any} */ ({})) {
		[this.pass, this.base, this.head] = [pass, base, null];
		this.#chooseOpenHead(chosen);
		this.draw();
		return this.loadHead();
	}

	/** The chosen head, or the one whose ablation changes the answer most. */
	#chooseOpenHead({ q, k, s }) {
		const { story } = this.base;
		const stack = this.pass.stacks.at(-1);
		const fallback = { stack: stack.name, layer: 0, part: stack.layers[0]?.attentions.at(-1)?.part, head: 0 };
		this.open = { ...fallback, ...story, ...nonNull(this.open ?? {}) };
		const isThere = ({ part, num_heads }) => part === this.open.part && this.open.head < num_heads;
		if (!this.stackOf(this.open.stack).layers[this.open.layer]?.attentions.some(isThere)) this.open = fallback;
		const { pieces } = this.stackOf(this.open.stack).tokens;
		const last = pieces.length - 1;
		const lastWord = pieces.findLastIndex((piece) => /[\p{L}\p{N}]/u.test(piece));
		const isAnswering = this.pass.next_tokens.length > 0;
		const fitting = this.isStory() ? story.query : isAnswering ? last : Math.max(lastWord, 0);
		this.row = clamp(q === undefined ? fitting : Number(q), 0, last);
		this.key = k === undefined ? null : Number(k);
		this.step = Number(s) || 0;
	}

	stackOf(name) {
		return this.pass.stacks.find((stack) => stack.name === name) ?? this.pass.stacks.at(-1);
	}

	/** Tokens of the queries and of the keys of an attention. */
	#piecesOf({ stack, part }) {
		const queries = this.stackOf(stack);
		return [queries, part === "attention" ? queries : this.pass.stacks[0]].map(({ tokens }) => tokens.pieces);
	}

	isStory() {
		const { story } = this.base;
		return story && headName(story) === headName(this.open);
	}

	/** Whether a head can be switched off: one of the stack that answers. */
	canSwitch({ stack }) {
		return stack === this.pass.stacks.at(-1).name && this.pass.next_tokens.length > 0;
	}

	isOff(stack, layer, part, head) {
		return this.canSwitch({ stack }) && this.off.some((one) => shortName(one) === shortName({ part, layer, head }));
	}

	draw() {
		this.flow.show(this.pass, {
			open: this.open,
			token: { stack: this.open.stack, row: this.row },
			isOff: (...place) => this.isOff(...place),
			labelWidth: this.similar ? 260 : undefined,
			hasBars: this.similar ? true : undefined,
			cached: this.cached,
			before: this.off.length ? this.base.stacks : null,
			size: Math.min(Math.max(window.innerHeight - 460, 260), 560),
			narrow: isPhone(),
		});
		this.drawAnswer();
		this.#drawCaption();
		this.#drawRail();
	}

	#drawCaption() {
		fill(this.caption, this.#effect() || this.note || this.similar?.caption || this.#whereItLooks());
	}

	/** Where the chosen token looks in the open head; of the story, also what the head is for. */
	#whereItLooks() {
		const { layer, head, part } = this.open;
		const { story } = this.base;
		const [queries, keys] = this.#piecesOf(this.open);
		const isCross = part === CROSS;
		const row = this.head?.weights[this.row];
		const isTold = this.isStory() && this.row === story.query && (this.key ?? story.key) === story.key;
		const key = isTold ? story.key : row && Math.min(this.key ?? argmax(row), row.length - 1);
		const test = this.canSwitch(this.open) ? " Switch it off to test whether it matters." : "";
		const place = `ead ${head} of layer ${layer}`;
		if (key === undefined) return `H${place}.${test}`;
		const value = `weight ${writeNumber(isTold ? story.weight : row[key], 2)}`;
		const attributes = { class: "text-button", title: "How this number is calculated" };
		const [from, to] = [word(queries[this.row]), isCross || key !== this.row ? word(keys[key]) : "itself"];
		const looks = [
			isCross && isTold
				? ["Writing ", word(story.token), " after ", from, `, h${place} looks at `, to]
				: [
						`H${place} looks from `,
						from,
						isCross || key === this.row ? " at " : key < this.row ? " back to " : " to ",
						to,
					],
			" ",
			make(
				"span.unbroken",
				"(",
				button(value, () => this.showArithmetic(), attributes),
				").",
			),
		];
		if (!isTold) return [looks, test];
		if (story.before - story.after < 0.01) return [looks, " No single head changes the next token by more than 0.01."];
		const change = ` falls from ${writeNumber(story.before, 2)} to ${writeNumber(story.after, 2)}.`;
		return [looks, " Without this head, ", word(story.token), change];
	}

	/** The token whose probability changed most, with its numbers. */
	#effect() {
		if (!this.off.length) return null;
		const now = new Map(this.pass.next_tokens.map(({ id, probability }) => [id, probability]));
		const changes = this.base.next_tokens
			.filter(({ id }) => now.has(id))
			.map(({ id, piece, probability }) => ({ piece, before: probability, after: now.get(id) }))
			.sort((one, other) => Math.abs(other.before - other.after) - Math.abs(one.before - one.after));
		if (!changes.length) return null;
		const heads = this.off
			.map(({ part, layer, head }) => `layer ${layer}, ${part === CROSS ? "cross-attention " : ""}head ${head}`)
			.join("; ");
		const [first, second] = changes.map(({ piece, before, after }) => [
			word(piece),
			` ${after < before ? "falls" : "rises"} from ${writeNumber(before, 2)} to ${writeNumber(after, 2)}`,
		]);
		return [`Without ${heads}: `, ...first, ...(second ? [", ", ...second] : []), "."];
	}

	drawAnswer() {
		const { pass, similar, warmed } = this;
		const isTranslation = pass.stacks.length > 1;
		const add = !isTranslation && !similar && this.source.nextToken;
		const before = this.off.length || warmed ? this.base.next_tokens : [];
		const piece = pass.stacks.at(-1).tokens.pieces[pass.answer_row];
		const after = isTranslation ? ` after ${piece}` : add ? ": click to add" : "";
		const tokens = similar?.items ?? warmed ?? pass.next_tokens;
		fillAnswer(this.answer, tokens, before, add, similar?.title ?? `next token${after}`);
	}

	#drawRail() {
		const { layer, head, part, stack } = this.open;
		const isOff = this.isOff(stack, layer, part, head);
		fill(
			this.switches,
			this.off.length > 1 && button("All heads on", () => this.setOff([])),
			this.canSwitch(this.open) &&
				(this.source.canAblate?.(this.open) ?? true) &&
				button(`Switch this head ${isOff ? "on" : "off"}`, () => this.toggleHead(), {
					class: isOff ? "plain" : "plain main",
					title: `Layer ${layer}, head ${head} (o)`,
				}),
			Boolean(part) && button("Play", () => this.playArithmetic(), { title: "Play this arithmetic" }),
		);
		const cached = `Rows in italics: the keys and values of ${this.cached} tokens come from the KV cache.`;
		const pieces = this.pass.stacks.flatMap(({ tokens }) => tokens.pieces);
		const numUnknown = pieces.filter((piece) => piece === "<unk>").length;
		const unknown = `${numUnknown} of ${pieces.length} tokens are <unk>, words that this model does not know.`;
		const numSplit = this.pass.stacks[0].tokens.word_positions.filter(({ length }) => length > 1).length;
		const words = numSplit === 1 ? "1 word is" : `${numSplit} words are`;
		const split = `${words} split into pieces: this model's vocabulary does not have them.`;
		fill(
			this.rail,
			make("div.row", this.source.rail?.() ?? []),
			[
				...this.base.interventions.map((one) => `Intervention: ${one}`),
				numUnknown > 0 && unknown,
				numSplit > 0 && split,
				byteNote(pieces),
				this.cached !== undefined && cached,
			].map((note) => note && make("p.note", note)),
			caveatLine(this.pass.caveat),
		);
		fill(this.legend, legend(this.source, this.pass.next_tokens.length > 0));
	}

	async loadHead() {
		const place = (this.open = { ...this.open }); // a new object: an earlier request that is still open is outdated
		if (!place.part) return;
		const numbers = await this.source.head(place);
		if (place !== this.open || !numbers) return;
		const { stack, layer, part, head } = place;
		const [queries, keys] = this.#piecesOf(place).map(numbered);
		const { steps, ...formula } = numbers;
		const { loss, next_tokens: next } = this.pass;
		this.head = {
			...steps,
			...formula,
			origin: !formula.additive?.length && originIn(this.source.glossaryLink),
			about: steps.gradient && aboutStep(loss, this.pass.stacks.length === 1 && next[0]),
			queries,
			keys,
			isOff: this.isOff(stack, layer, part, head),
			title: ["model", `layer ${layer}`, ...(part === "attention" ? [] : ["cross-attention"]), `head ${head}`],
		};
		this.flow.writeWeights(steps.weights);
		this.showCell();
	}

	showNote(text) {
		this.head = null;
		this.board.write(quiet(text));
	}

	showCell() {
		this.#drawCaption();
		const weights = this.head.weights[this.row];
		const key = this.key ?? argmax(weights);
		this.board.show(this.head, this.row, Math.min(key, weights.length - 1), this.step);
	}

	chooseToken(stack, row) {
		if (stack === this.open.stack) this.chooseCell(row, null);
		else if (this.open.part === CROSS) this.chooseCell(this.row, row);
	}

	chooseCell(row, key) {
		[this.row, this.key] = [row, key];
		this.source.onChange({ q: row, k: key });
		this.flow.view.token = { stack: this.open.stack, row };
		this.flow.highlight(null);
		if (this.head) this.showCell();
	}

	openHead(place) {
		this.open = place;
		this.key = this.head = null;
		this.row = Math.min(this.row, this.stackOf(place.stack).tokens.pieces.length - 1);
		this.source.onChange({ l: place.layer, h: place.head, p: `${place.stack}.${place.part}`, k: null }, true);
		this.draw();
		this.flow.svg.querySelector(".head.open")?.focus({ preventScroll: true });
		return this.loadHead();
	}

	openLayer(stack, layer) {
		const part = this.stackOf(stack).layers[layer]?.attentions.at(-1)?.part;
		return part && this.openHead({ stack, layer, part, head: 0 });
	}

	toggleHead() {
		if (!this.canSwitch(this.open)) return undefined;
		return this.setOff(toggled(this.off, this.open));
	}

	showArithmetic() {
		scrollTo(this.board.element);
	}

	playArithmetic() {
		this.showArithmetic();
		if (!this.board.player.timer) this.board.togglePlay();
	}

	setOff(heads) {
		this.off = heads;
		return this.source.pass(heads);
	}

	moveHead(layers, heads) {
		const { stack, part } = this.open;
		const layer = this.stackOf(stack).layers[this.open.layer + layers];
		const attention = layer?.attentions.find((one) => one.part === part);
		const head = layers ? Math.min(this.open.head, (attention?.num_heads ?? 1) - 1) : this.open.head + heads;
		if (attention && head >= 0 && head < attention.num_heads) this.openHead({ stack, layer: layer.layer, part, head });
	}

	keys() {
		return [
			{ key: "ArrowUp", label: "Previous token", run: () => this.moveToken(-1) },
			{ key: "ArrowDown", label: "Next token", run: () => this.moveToken(1) },
			{ key: "ArrowLeft", label: "Previous step of the arithmetic", run: () => this.moveStep(-1) },
			{ key: "ArrowRight", label: "Next step of the arithmetic", run: () => this.moveStep(1) },
			{ key: "o", label: "Switch this head off or on", run: () => this.toggleHead() },
			{ key: " ", label: "Play the arithmetic, or stop", run: () => this.board.togglePlay() },
			...headKeys((layers, heads) => this.moveHead(layers, heads)),
		];
	}

	moveStep(by) {
		this.board.move(by);
		scrollTo(this.board.element, "nearest");
	}

	moveToken(by) {
		const row = this.row + by;
		if (row >= 0 && row < this.stackOf(this.open.stack).tokens.pieces.length) this.chooseCell(row, null);
	}
}

/** @param {ScrollLogicalPosition} block */
export function scrollTo(element, block = "start") {
	element.scrollIntoView({ block, behavior: prefersStills() ? "auto" : "smooth" });
}

/** Where the vectors of a query and a key come from. */
const originIn = (link) => (query, key) => [
	linked("[query] q comes from W_q × vector of ", link),
	bdi(query),
	linked(", [key] k from W_k × vector of ", link),
	bdi(key),
	", the learned matrices of this layer.",
];

/** What a training step learns from, and its loss. */
function aboutStep(loss, next) {
	return [
		`A training step on this ${next ? "sentence, followed by " : "translation"}`,
		next && word(next.piece),
		`: loss ${writeNumber(loss)}, the mean of −ln p of the next tokens. `,
		"The step is not taken: the model stays as it is.",
	];
}

/** The likeliest next tokens, now and before; with `add` as buttons. */
export function fillAnswer(place, tokens, before = [], add = null, title = "next token") {
	const measure = title.startsWith("next") ? "probability" : title;
	const items = tokens.slice(0, isPhone() ? 4 : 8).map(({ id, piece, probability }) => {
		const was = before.find((token) => token.id === id)?.probability;
		const written = writeNumber(probability, 2);
		const change = was === undefined ? "" : `${writeNumber(was, 2)} → `;
		const label = `${piece}: ${measure} ${written}${change && `, before ${writeNumber(was, 2)}`}`;
		const attributes = { class: "text-button", title: "Add this token" };
		return make(
			"li",
			{ "aria-label": label },
			add ? button(bdi(piece), () => add(piece), attributes) : bdi(piece),
			make("span", was !== undefined && bar(was, "was"), bar(Math.max(probability, 0))),
			make("span.number", change, written),
		);
	});
	fill(place, items.length > 0 && [make("b", title), make("ol", { "aria-label": title }, items)]);
}

/** Pieces that occur more than once with their positions. */
function numbered(pieces) {
	const isSingle = (piece) => pieces.indexOf(piece) === pieces.lastIndexOf(piece);
	return pieces.map((piece, row) => (isSingle(piece) ? piece : `${piece} (${row})`));
}

/** Text whose [terms] are links, if there is a `link` to them. */
export function linked(text, link = (term) => term) {
	return text.split(/[[\]]/).map((part, index) => (index % 2 ? link(part) : part));
}

/** What the signs of the picture mean; a saved page has no rail with a temperature, an encoder no next token. */
function legend({ glossaryLink: link, rail }, hasNext) {
	return [
		["ribbon", "a token (right end) looks at another (left end): the wider, the larger the weight"],
		["map", "one attention [head]: each row is a token, bright where it looks; click to open it"],
		["⊕", "what was found is added to the line of the token ([residual] stream)"],
		["bar", "how much the [feed-forward network] adds"],
		hasNext && ["was", `dashed: as it was before a head was switched off${rail ? " or the temperature changed" : ""}`],
		hasNext && ["…", "would say: the next token if the model ended after this layer ([logit lens]); bold: changed"],
		["·", "a space before the word; <bos> and <eos>: begin and end of the text"],
	]
		.filter(Boolean)
		.map(([sign, text]) =>
			make(
				"li",
				make("span", { class: `sign-${sign}`, "aria-hidden": true }, sign.length > 1 ? "" : sign),
				linked(text, link),
			),
		);
}

export function word(piece) {
	return make("b", bdi(piece.replace(/^·(?=.)/, "")));
}

function nonNull(fields) {
	return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null));
}
