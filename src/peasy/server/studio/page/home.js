// Page Home: one sentence through a whole model, drawn from its numbers; heads open to the arithmetic of one weight.

import { ModelFlow } from "/web/render/modelflow.js";
import { writeNumber } from "/web/render/numbers.js";
import { bdi, button, caveatLine, element, flexRow, slider, tableDetails, table } from "../element.js";
import { headMatrix, requestArrays } from "../home/arrays.js";
import { HEAD_STEPS, HeadZoom, scaleOf } from "../home/headzoom.js";
import { CHAPTERS, chapterPanel } from "../home/textbook.js";
import { headKeys } from "../keys.js";
import { latestOnly } from "../latest.js";
import { ablations, readHeads, writeHeads } from "../look/effect.js";

const canBeDrawn = (model) => model.capabilities.includes("look");

export const page = { name: "home", title: "Home", letter: "h", model: canBeDrawn, text: "A sentence for the model" };

const PRESETS = [
	{ label: "What does “it” mean?", m: "stories", t: "The pizza came out of the oven and it" },
	{ label: "Copy what came before", m: "stories", t: "My sister lost the red key. My sister lost the red" },
	{ label: "3 days ago → French", m: "locales-fr", t: "3 days ago" },
	{ label: "Which sentences are alike?", m: "sentences", t: "The food was great" },
];
const COMPARED = "The meal tasted wonderful"; // the second sentence of an encoder's picture

export class Page {
	/** @type {Promise<string[]>} */
	experiments;
	/** @type {Record<string, any> | null} */
	head = null;
	/** @type {Record<string, any> | null} */
	base = null;
	baseKey = "";

	constructor(place, shell) {
		this.shell = shell;
		this.caption = element("p", { class: "story", role: "status" });
		this.flow = new ModelFlow({
			token: (stack, row) => this.chooseToken(stack, row),
			head: (stack, layer, part, head) => this.openHead({ stack, layer, part, head }),
			layer: (stack, layer) => this.openLayer(stack, layer),
			nextToken: (_id, piece) => this.addToken(piece),
		});
		this.zoom = new HeadZoom(
			(row, key) => this.chooseCell(row, key),
			(step) => this.shell.setState({ s: step || null }),
		);
		this.rail = element("div", { class: "card flow-rail" });
		this.book = element("div", {});
		this.numbers = element("div", {});
		this.bookButton = button("Textbook", () => this.openChapter(this.state.ch ? -1 : 0), {
			class: "plain textbook-button",
			title: "Ten short chapters that move the picture",
		});
		this.presets = element("div", { class: "row presets", role: "group", "aria-label": "Examples" });
		const main = element(
			"div",
			{ class: "home-main" },
			this.caption,
			this.flow.element,
			this.rail,
			this.zoom.element,
			this.numbers,
		);
		place.append(
			element("h1", {}, "One sentence through a Transformer"),
			element(
				"p",
				{ class: "lead" },
				"Every line, map and bar below is drawn from the numbers of a real model. Click what you want to understand.",
			),
			this.presets,
			element("div", { class: "home" }, main, this.book),
		);
		this.runLatest = latestOnly(shell, this.flow.element);
		this.runZoom = latestOnly(shell, this.zoom.element, this.zoom.element);
		shell.onStateChange((state) => this.start(state));
	}

	close() {
		this.zoom.close();
		document.body.classList.remove("lecture");
	}

	async start(state) {
		this.state = { ...state };
		const models = (await this.shell.bar.listModels(canBeDrawn)).map(({ name }) => name);
		const first = PRESETS.find(({ m }) => models.includes(m));
		this.model = state.m ?? first?.m ?? (await this.shell.modelName(canBeDrawn));
		this.text =
			state.t?.trim() || (PRESETS.find(({ m }) => m === this.model)?.t ?? "The pizza came out of the oven and it");
		this.shell.bar.show({ ...state, m: this.model, t: this.text });
		this.off = readHeads(state.off);
		this.open = state.l === undefined ? null : this.#headFromUrl(state);
		this.experiments ??= this.shell.request("experiment").then(
			({ result }) => (result.experiments ?? []).map(({ name }) => name),
			() => [],
		);
		this.drawPresets(models);
		await this.drawBook();
		await this.load();
	}

	#headFromUrl({ l, h, p }) {
		const [stack, part] = (p ?? "").split(".");
		return { layer: Number(l) || 0, head: Number(h) || 0, stack: stack || null, part: part || null };
	}

	drawPresets(models) {
		const known = PRESETS.filter(({ m }) => models.includes(m));
		this.presets.replaceChildren(
			...known.map(({ label, m, t }) =>
				button(label, () => this.navigate({ m, t }), { "aria-pressed": m === this.model && t === this.text }),
			),
			element("a", { class: "plain", href: "models" }, "Your own model"),
			this.bookButton,
		);
	}

	navigate(state) {
		return this.shell.navigate("home", { ...state, ch: this.state.ch });
	}

	/** Request and draw the picture; the head that matters is searched for while it can be seen already. */
	load() {
		const body = { model: this.model, text: this.text };
		const edit = ablations(this.off);
		const pass = async (fields) => (await this.shell.request("forward-pass", { ...body, ...fields })).result;
		const key = JSON.stringify(body);
		return this.runLatest(
			async () => {
				if (this.baseKey !== key) [this.base, this.baseKey] = [await pass({ story: false }), key];
				return edit.length ? pass({ edit, story: false }) : this.base;
			},
			async (shown) => {
				this.shell.clearError();
				this.pass = shown;
				const needsStory = this.base.story === null && this.base.next_tokens.length > 0;
				if (needsStory) {
					this.chooseOpenHead();
					this.draw();
					this.caption.textContent = "Looking for the head that matters most …";
					const { story } = await pass({});
					if (this.baseKey !== key) return;
					this.base.story = story;
					if (this.state.l === undefined) this.open = null;
				}
				this.chooseOpenHead();
				this.draw();
				this.enableKeys();
				await this.loadHead();
			},
		);
	}

	/** The head in the URL, or the one whose ablation changes the answer most. */
	chooseOpenHead() {
		const { story } = this.base;
		const stack = this.pass.stacks.at(-1);
		const fallback = { stack: stack.name, layer: 0, part: stack.layers[0]?.attentions.at(-1)?.part, head: 0 };
		this.open = { ...fallback, ...story, ...nonNull(this.open ?? {}) };
		const layers = this.pass.stacks.find(({ name }) => name === this.open.stack)?.layers ?? [];
		if (
			!layers[this.open.layer]?.attentions.some(
				({ part, num_heads }) => part === this.open.part && this.open.head < num_heads,
			)
		)
			this.open = { ...fallback };
		const queries = this.stackOf(this.open.stack).tokens.pieces.length;
		const row = this.state.q === undefined ? (this.isStory() ? story.query : queries - 1) : Number(this.state.q);
		this.row = Math.min(Math.max(row, 0), queries - 1);
		this.key = this.state.k === undefined ? null : Number(this.state.k);
	}

	stackOf(name) {
		return this.pass.stacks.find((stack) => stack.name === name) ?? this.pass.stacks.at(-1);
	}

	isStory() {
		const { story } = this.base;
		return story && ["stack", "layer", "part", "head"].every((name) => story[name] === this.open[name]);
	}

	isOff(stack, layer, part, head) {
		return (
			part === "attention" &&
			stack === this.pass.stacks.at(-1).name &&
			this.off.some((ablated) => ablated.layer === layer && ablated.head === head)
		);
	}

	draw() {
		const isEdited = this.off.length > 0;
		this.flow.show(this.pass, {
			open: this.open,
			token: { stack: this.open.stack, row: this.row },
			isOff: (...place) => this.isOff(...place),
			nextTokens: this.warmed ?? this.pass.next_tokens,
			nextTokensBefore: isEdited ? this.base.next_tokens : null,
			cached: this.cached,
			size: 420,
			narrow: window.innerWidth < 700,
		});
		this.drawCaption();
		this.drawRail();
		this.drawNumbers();
	}

	drawCaption() {
		const { story } = this.base;
		const effect = this.off.length > 0 && this.changeSentence();
		if (effect) {
			this.caption.replaceChildren(...effect);
			return;
		}
		if (!this.isStory()) {
			this.caption.replaceChildren(
				`Layer ${this.open.layer}, head ${this.open.head}. Switch it off to test whether it matters.`,
			);
			return;
		}
		const queries = this.stackOf(story.stack).tokens.pieces;
		const keys = story.part === "cross_attention" ? this.pass.stacks[0].tokens.pieces : queries;
		const isCross = story.part === "cross_attention";
		const begin = isCross
			? ["Writing ", word(story.token), ", this head looks at ", word(keys[story.key])]
			: ["This head looks from ", word(queries[story.query]), " back to ", word(keys[story.key])];
		if (story.before - story.after < 0.01) {
			this.caption.replaceChildren(...begin, ". No single head changes the next token by more than 0.01.");
			return;
		}
		const change = ` falls from ${writeNumber(story.before, 2)} to ${writeNumber(story.after, 2)}.`;
		this.caption.replaceChildren(
			...begin,
			` (weight ${writeNumber(story.weight, 2)}). Without it, `,
			word(story.token),
			change,
		);
	}

	/** The token whose probability changed most, with its numbers. */
	changeSentence() {
		const now = new Map(this.pass.next_tokens.map(({ id, probability }) => [id, probability]));
		const changes = this.base.next_tokens
			.filter(({ id }) => now.has(id))
			.map(({ id, piece, probability }) => ({ piece, before: probability, after: now.get(id) }))
			.sort((one, other) => Math.abs(other.before - other.after) - Math.abs(one.before - one.after));
		if (!changes.length) return null;
		const [{ piece, before, after }] = changes;
		const heads = this.off.map(({ layer, head }) => `${layer}.${head}`).join(", ");
		const verb = after < before ? "falls" : "rises";
		return [
			`Without head ${heads}, `,
			word(piece),
			` ${verb} from ${writeNumber(before, 2)} to ${writeNumber(after, 2)}.`,
		];
	}

	drawRail() {
		const { layer, head, part, stack } = this.open;
		const canSwitch = part === "attention" && stack === this.pass.stacks.at(-1).name;
		const off = this.isOff(stack, layer, part, head);
		const hasNext = this.pass.next_tokens.length > 0;
		const isEnd = this.pass.next_tokens[0]?.piece === "<eos>";
		this.rail.replaceChildren(
			...[
				flexRow(
					canSwitch &&
						button(
							off ? `Switch head ${layer}.${head} on` : `Switch head ${layer}.${head} off`,
							() => this.toggleHead(),
							{ "aria-pressed": off },
						),
					this.off.length > 1 && button("All heads on", () => this.setOff([])),
					hasNext &&
						this.pass.stacks.length === 1 &&
						!isEnd &&
						button("One more token", () => this.addToken(this.pass.next_tokens[0].piece)),
					hasNext &&
						slider(
							"temperature",
							{ min: 0.1, max: 2, step: 0.1, value: this.temperature ?? 1, write: (value) => value.toFixed(1) },
							(value) => this.warm(value),
						),
					button("Share", () => this.shell.copyText(location.href, "link to this picture")),
					element(
						"a",
						{
							href: `look?m=${encodeURIComponent(this.model)}&t=${encodeURIComponent(this.text)}&l=${layer}&h=${head}`,
						},
						"All heads as maps",
					),
				),
				this.cached !== undefined &&
					element(
						"p",
						{ class: "note" },
						`Grey rows: keys and values of ${this.cached} tokens come from the KV cache; only the last row was computed.`,
					),
				caveatLine(this.pass.caveat),
			].filter(Boolean),
		);
	}

	drawNumbers() {
		const rows = this.pass.next_tokens.map(({ piece, probability }) => [piece, writeNumber(probability, 4)]);
		const lens = this.pass.stacks.flatMap(({ layers }) =>
			layers
				.filter((layer) => layer.lens.length)
				.map((layer) => [
					`after layer ${layer.layer}`,
					layer.lens.map(({ piece, probability }) => `${piece} ${writeNumber(probability, 2)}`).join(", "),
				]),
		);
		this.numbers.replaceChildren(
			...(rows.length
				? [
						tableDetails(
							table("Next token", ["token", "probability"], rows),
							table("Logit lens", ["layer", "would say"], lens),
						),
					]
				: []),
		);
		if (this.pass.model_kind === "encoder") this.drawSimilarity();
	}

	/** An encoder ends in one vector: how near it is to that of a second sentence. */
	async drawSimilarity() {
		await this.shell.attempt(async () => {
			const { result } = await this.shell.request("embed", { model: this.model, texts: [this.text, COMPARED] });
			const value = result?.cosines?.[0]?.[1];
			if (value === undefined) return;
			this.caption.replaceChildren(
				"The mean of all rows is the vector of the sentence. Its cosine with ",
				word(COMPARED),
				` is ${writeNumber(value, 2)}.`,
			);
		});
	}

	/** Request the numbers of the open head, and show the arithmetic of the chosen cell. */
	loadHead() {
		const { stack, layer, part, head } = this.open;
		if (!part) return undefined;
		const body = {
			model: this.model,
			text: this.text,
			layers: [layer],
			heads: [head],
			steps: HEAD_STEPS,
			edit: ablations(this.off),
		};
		return this.runZoom(
			() => requestArrays(body, this.shell.signal),
			(arrays) => {
				const matrices = Object.fromEntries(
					HEAD_STEPS.map((step) => [step, headMatrix(arrays, { stack, layer, part }, step)]),
				);
				if (!matrices.weights || !matrices.query || !matrices.value) return this.zoom.element.replaceChildren();
				const queries = this.stackOf(stack).tokens.pieces;
				const keys = part === "cross_attention" ? this.pass.stacks[0].tokens.pieces : queries;
				const kind = part === "cross_attention" ? ["cross-attention"] : [];
				const scale = scaleOf(matrices);
				this.head = {
					...matrices,
					queries,
					keys,
					scale,
					softcap: 0,
					title: [`layer ${layer}`, ...kind, `head ${head}`],
				};
				this.showCell();
				return undefined;
			},
		);
	}

	showCell() {
		const weights = this.head.weights[this.row];
		const key = this.key ?? weights.indexOf(Math.max(...weights));
		this.zoom.show(this.head, this.row, Math.min(key, weights.length - 1), Number(this.state.s) || 0);
	}

	chooseToken(stack, row) {
		if (stack !== this.open.stack) {
			if (this.open.part === "cross_attention") this.chooseCell(this.row, row);
			return;
		}
		this.chooseCell(row, null);
	}

	chooseCell(row, key) {
		[this.row, this.key] = [row, key];
		Object.assign(this.state, { q: row, k: key ?? undefined });
		this.shell.setState({ q: row, k: key });
		this.flow.view.token = { stack: this.open.stack, row };
		this.flow.highlight(null);
		if (this.head) this.showCell();
	}

	openHead(place) {
		this.open = place;
		this.key = null;
		const queries = this.stackOf(place.stack).tokens.pieces.length;
		this.row = Math.min(this.row, queries - 1);
		Object.assign(this.state, { l: place.layer, h: place.head, k: undefined });
		this.shell.setState({ l: place.layer, h: place.head, p: `${place.stack}.${place.part}`, k: null }, { push: true });
		this.draw();
		this.flow.svg.querySelector(".head.open")?.focus({ preventScroll: true });
		return this.loadHead();
	}

	openLayer(stack, layer) {
		const part = this.stackOf(stack).layers[layer].attentions.at(-1)?.part;
		if (part) this.openHead({ stack, layer, part, head: 0 });
	}

	toggleHead() {
		const { layer, head } = this.open;
		const others = this.off.filter((ablated) => ablated.layer !== layer || ablated.head !== head);
		this.setOff(others.length < this.off.length ? others : [...this.off, { layer, head }]);
	}

	setOff(heads) {
		this.off = heads;
		this.warmed = null;
		this.temperature = 1;
		this.state.off = writeHeads(heads);
		this.shell.setState({ off: this.state.off || null }, { push: true });
		return this.load();
	}

	/** Append a token to the text; earlier rows come from the cache then. */
	addToken(piece) {
		if (this.pass.stacks.length > 1 || /^<.*>$/.test(piece)) return undefined;
		const visible = piece.replace(/^·/, " ").replaceAll("⏎", "\n");
		this.cached = this.pass.stacks[0].tokens.pieces.length;
		this.text += visible;
		Object.assign(this.state, { t: this.text, q: undefined, k: undefined, l: undefined, h: undefined });
		this.shell.setState({ t: this.text, q: null, k: null, l: null, h: null, p: null }, { push: true });
		this.open = null;
		this.warmed = null;
		return this.load();
	}

	/** Next-token probabilities at another temperature. */
	async warm(temperature) {
		this.temperature = temperature;
		await this.shell.attempt(async () => {
			const { result } = await this.shell.request("next-token", {
				model: this.model,
				text: this.text,
				temperature,
				top: 8,
			});
			if (temperature !== this.temperature) return;
			this.warmed = result.choices.map(({ piece, id, adjusted_probability }) => ({
				piece,
				id,
				probability: adjusted_probability,
			}));
			this.flow.show(this.pass, {
				...this.flow.view,
				nextTokens: this.warmed,
				nextTokensBefore: this.base.next_tokens,
			});
		});
	}

	async drawBook() {
		const number = Number(this.state.ch ?? 0) - 1;
		const open = (chapter) => this.openChapter(chapter);
		const isOpen = Boolean(CHAPTERS[number]);
		this.bookButton.setAttribute("aria-expanded", String(isOpen));
		this.book.replaceChildren(...(isOpen ? [chapterPanel(number, open, await this.experiments)] : []));
	}

	async openChapter(number) {
		this.state.ch = number < 0 ? undefined : String(number + 1);
		this.shell.setState({ ch: this.state.ch ?? null }, { push: true });
		await this.drawBook();
		this.book.querySelector("h2")?.scrollIntoView?.({ block: "nearest" });
		const { show } = CHAPTERS[number] ?? {};
		if (!show || !this.pass) return;
		this.state.s = show.step === undefined ? undefined : String(show.step);
		this.shell.setState({ s: this.state.s ?? null });
		const { story } = this.base;
		if (show.head && story) {
			Object.assign(this.state, { q: story.query, k: undefined });
			this.row = story.query;
			await this.openHead({ stack: story.stack, layer: story.layer, part: story.part, head: story.head });
		} else if (this.head) this.showCell();
	}

	/** Register keys and exports: only once there is a picture that they can act on. */
	enableKeys() {
		if (this.keysEnabled) return;
		this.keysEnabled = true;
		const step = (by) => () => this.zoom.move(by);
		this.shell.keys.add([
			...headKeys((layers, heads) => this.moveHead(layers, heads)),
			{ key: "ArrowUp", label: "Previous token", run: () => this.moveToken(-1) },
			{ key: "ArrowDown", label: "Next token", run: () => this.moveToken(1) },
			{ key: "ArrowLeft", label: "Previous step of the arithmetic", run: step(-1) },
			{ key: "ArrowRight", label: "Next step of the arithmetic", run: step(1) },
			{ key: " ", label: "Play the arithmetic, or stop", run: () => this.zoom.togglePlay() },
			{ key: "o", label: "Switch this head off or on", run: () => this.toggleHead() },
			{ key: "+", label: "One more token", run: () => this.addToken(this.pass.next_tokens[0]?.piece ?? "<>") },
			{
				key: "f",
				label: "Lecture mode: only the picture, larger letters",
				run: () => document.body.classList.toggle("lecture"),
			},
		]);
		this.shell.setExports(() => ({
			command: "look",
			body: { model: this.model, text: this.text, layers: [this.open.layer], heads: [this.open.head] },
		}));
		this.shell.setCopyItems(() => [{ label: "Numbers as JSON", text: () => JSON.stringify(this.pass) }]);
	}

	moveHead(layers, heads) {
		const { stack, part } = this.open;
		const layer = this.stackOf(stack).layers[this.open.layer + layers];
		const attention = layer?.attentions.find((one) => one.part === part);
		const head = layers ? Math.min(this.open.head, (attention?.num_heads ?? 1) - 1) : this.open.head + heads;
		if (attention && head >= 0 && head < attention.num_heads) this.openHead({ stack, layer: layer.layer, part, head });
	}

	moveToken(by) {
		const row = this.row + by;
		if (row >= 0 && row < this.stackOf(this.open.stack).tokens.pieces.length) this.chooseCell(row, null);
	}
}

function word(piece) {
	return element("b", {}, bdi(piece.replace(/^·/, "")));
}

function nonNull(fields) {
	return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}
