// Page Look: attention of any model on the user's text, from all heads to one head to one number.

import { ablations, headName, readHeads, toggled, writeHeads } from "/web/render/flowview.js";
import { byteNote } from "/web/render/figure.js";
import { Board } from "/web/render/board.js";
import { argmax, clamp, formatCount, indices, writeNumber } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import {
	bdi,
	button,
	card,
	caveatLine,
	element,
	examples,
	field,
	fill,
	flexRow,
	pageHeader,
	select,
	table,
	tableDetails,
} from "../element.js";
import { headKeys } from "/web/render/moves.js";
import { latestOnly } from "../latest.js";
import { effectPanel, nextTokenLine } from "../look/effect.js";
import { rankingPanel } from "../look/ranking.js";
import { tabs } from "../tabs.js";

export const page = { model: "look", text: "A sentence to inspect", ofText: ["q", "k"] };

const DEFAULT_TEXT = "The pizza came out of the oven and it";
const EXAMPLES = [
	[DEFAULT_TEXT, "stories"],
	["q w e r t y q w e", "repeats"],
	["My phone broke, great.", "sentences"],
	["3 days ago", "locales-fr"],
];
const LONG_TEXT = 600; // characters above which the tokens are counted before the attention is requested
const MAX_TOKENS = 160; // more are shown as a tiled overview
const EXACT_ROWS = 16; // rows of a long text that are requested exactly, around the selected one

export class Page {
	key = 0;

	constructor(place, shell) {
		this.shell = shell;
		this.examples = element("div");
		this.picture = element("section", { "aria-label": "Attention" });
		this.ablationPanel = card("Next token and heads that are off");
		this.board = new Board(
			(row, key) => {
				this.maps.selectCell(row, key);
				this.maps.emitSelection();
			},
			() => {},
		);
		this.runView = latestOnly(shell, null);
		this.runBoard = latestOnly(shell, this.board.element, this.board.element);
		this.headNumbers = element("div");
		this.tabPlace = element("div");
		place.append(
			...pageHeader("Look", "What each attention head of a model looks at, on your own text."),
			this.examples,
			this.tabPlace,
		);
		const moveCell = (rows, columns) => () => this.maps?.moveSelection(rows, columns);
		shell.keys.add([
			...headKeys((layers, heads) => this.maps?.selectMap(this.maps.mapRow + layers, this.maps.mapColumn + heads)),
			{ key: "ArrowUp", label: "Previous query", run: moveCell(-1, 0) },
			{ key: "ArrowDown", label: "Next query", run: moveCell(1, 0) },
			{ key: "ArrowLeft", label: "Previous key", run: moveCell(0, -1) },
			{ key: "ArrowRight", label: "Next key", run: moveCell(0, 1) },
			{
				key: "o",
				label: "Switch this head off or on",
				run: () => this.canSwitch() && this.toggleHead(this.layer, this.head),
			},
			{ key: "s", label: "This row step by step", run: () => this.tabs.choose("steps") },
		]);
		shell.setExports(() => ({ command: "look", body: this.exportBody() }));
		shell.setCopyItems(() => [{ label: "Result as JSON", text: () => JSON.stringify(this.response?.result) }]);
		shell.onStateChange((state) => this.start(state));
	}

	async start(state) {
		this.state = { ...state };
		this.headChosen = state.l !== undefined || state.h !== undefined;
		[this.layer, this.head] = [Number(state.l) || 0, Number(state.h) || 0];
		[this.query, this.key] = [state.q, state.k].map((position) => (position === undefined ? null : Number(position)));
		this.ablatedHeads = readHeads(state.off);
		this.model = await this.shell.modelName("look");
		this.text = state.t?.trim() || DEFAULT_TEXT;
		this.shell.bar.setDefaults({ m: this.model, t: this.text });
		this.isLong = await this.checkLength();
		await this.makeTabs();
		const models = (await this.shell.bar.listModels()).map(({ name }) => name);
		const known = EXAMPLES.filter(([, model]) => models.includes(model));
		fill(this.examples, examples("look", known));
		await this.tabs.choose(state.tab ?? "attention", false);
	}

	/** Only the tabs that this model has: a recurrent network has no layers of heads, the logit lens predicts tokens. */
	async makeTabs() {
		const entry = await this.shell.bar.findModel(this.model);
		this.isRecurrent = entry?.model_type === "recurrent-translator";
		const entries = [
			{ name: "attention", title: "Attention", show: () => this.showAttention() },
			{ name: "steps", title: "Step by step", show: () => this.showSteps() },
			{ name: "heads", title: "Heads", show: () => this.showHeads() },
			{ name: "lens", title: "Logit lens", show: () => this.showLens() },
		].slice(0, this.isRecurrent ? 1 : entry?.capabilities.includes("embed") ? 3 : 4);
		this.tabs = tabs(entries, (name) => {
			this.shell.setState({ tab: name === "attention" ? null : name });
			this.state.tab = name;
		});
		fill(this.tabPlace, this.tabs.element);
	}

	close() {
		this.board.write();
	}

	requestBody(fields = {}) {
		return { model: this.model, text: this.text, ...fields };
	}

	/** Request a view of /api/look with the ablated heads, rendered as a document too. */
	requestLook(fields, options) {
		const body = this.requestBody({ edit: ablations(this.ablatedHeads), html: true, ...fields });
		return this.shell.request("look", body, options);
	}

	/** Position of the selected query among the tokens; a whole word is represented by its last token. */
	queryField() {
		if (this.query === null) return {};
		const groups = this.state.w ? this.response?.result.tokens.word_positions : null;
		return { query: groups?.[this.query]?.at(-1) ?? this.query };
	}

	exportBody() {
		const fields = { steps: this.stepsFields(), heads: this.rankFields(), lens: { view: "lens" } }[this.state.tab];
		return this.requestBody({ edit: ablations(this.ablatedHeads), ...(fields ?? this.attentionFields()) });
	}

	stepsFields() {
		return { view: "steps", layers: [this.layer], heads: [this.head], ...this.queryField() };
	}

	rankFields() {
		return { view: "rank", by: this.state.by ?? "sharpness" };
	}

	/** For a long text: all tiles of one layer, and exact rows around the selected one. */
	attentionFields() {
		if (!this.isLong) return { merge_words: Boolean(this.state.w) };
		const first = clamp((this.query ?? 0) - EXACT_ROWS / 2, 0, this.numTokens - EXACT_ROWS);
		return { overview: "max", layers: [this.layer], queries: indices(EXACT_ROWS).map((index) => first + index) };
	}

	async checkLength() {
		if (this.text.length < LONG_TEXT) return false;
		const { result } = await this.shell.request("tokenize", this.requestBody());
		this.numTokens = (result.ids ?? result.tokens).length;
		if (this.numTokens <= MAX_TOKENS) return false;
		// the overview has one layer; how many there are, the pass of a short text says
		const pass = await this.shell.forwardPass(this.requestBody({ text: this.text.slice(0, 20) }));
		this.layers = indices(pass.stacks.at(-1).num_layers);
		return true;
	}

	showAttention() {
		this.showView(
			this.attentionFields(),
			async (response) => {
				this.response = response;
				await this.addNextTokens(response.result);
				await this.draw(response);
				await this.drawAblation();
			},
			this.picture,
		);
		return element("div", this.ablationPanel, this.picture, this.board.element, this.headNumbers);
	}

	/** The overview of a long text has no next tokens: they are requested apart, if the model writes. */
	async addNextTokens(result) {
		const entry = await this.shell.bar.findModel(this.model);
		if (!this.isLong || !entry?.capabilities.includes("generate")) return;
		const next = await this.shell.request("next-token", this.requestBody({ top: 5 }));
		result.next_tokens = next.result.choices;
	}

	/** Request a view and draw it in `container`, which is returned at once. */
	showView(fields, draw, container = element("div")) {
		const drawView = async (response) => {
			await draw(response, container);
			this.shell.clearError();
		};
		this.runView((options) => this.requestLook(fields, options), drawView, container);
		return container;
	}

	draw(response) {
		const rendered = renderDocument(response);
		this.maps = mainMaps(rendered);
		this.otherMaps = [...rendered.querySelectorAll("peasy-maps")].filter((maps) => maps !== this.maps);
		// The interactive map draws its own links, and the next token is shown above it.
		if (this.maps)
			rendered
				.querySelectorAll(".figure:has(peasy-links), figure.table, details:has(figure.table)")
				.forEach((figure) => figure.remove());
		if (this.maps && !this.isLong) this.maps.explain = () => this.board.element.scrollIntoView();
		this.maps?.addEventListener("peasy-select", ({ detail }) => this.onSelect(detail));
		const caveat = response.result.caveat ?? "";
		const bytes = byteNote(response.result.tokens.pieces);
		const isMissing = !rendered.textContent.toLowerCase().includes(caveat.toLowerCase());
		fill(
			this.picture,
			this.isLong && this.overviewNote(response.result),
			bytes && element("p.note", bytes),
			rendered,
			caveat && isMissing && caveatLine(caveat),
		);
		return this.maps?.ready?.then(() => this.restoreSelection());
	}

	overviewNote(result) {
		const numTokens = result.tokens.ids.length;
		const choose = (layer) => {
			this.layer = Number(layer);
			this.shell.setState({ l: this.layer });
			this.tabs.choose("attention", false);
		};
		return element(
			"div.note",
			`${formatCount(numTokens)} tokens: the map is an overview of one layer in tiles. Click a tile to see its rows ` +
				"below, with exact numbers. ",
			this.layers.length > 1 && field("layer", select(this.layers.map(String), String(this.layer), choose)),
		);
	}

	/** Select the head and cell of the URL; without them, the head that the server suggests. */
	restoreSelection() {
		const { maps } = this;
		if (!this.headChosen && !this.isLong)
			[this.layer, this.head, this.headChosen] = [maps.mapRow, maps.mapColumn, true];
		maps.mapRow = this.isLong ? 0 : Math.min(this.layer, maps.numMapRows - 1);
		maps.mapColumn = Math.min(this.head, maps.numMapColumns - 1);
		const { tileSize } = maps.data;
		const row =
			this.query === null
				? tileSize === 1
					? maps.rows - 1
					: maps.row
				: Math.min(Math.floor(this.query / tileSize), maps.rows - 1);
		maps.selectCell(
			row,
			this.key === null ? maps.strongestKey(row) : Math.min(Math.floor(this.key / tileSize), maps.columns - 1),
		);
		maps.redraw();
		this.showSameHead();
		this.showChosenCell();
	}

	/** Of a translator, also in the maps of its other attentions. */
	showSameHead() {
		for (const maps of this.otherMaps) maps.ready?.then(() => maps.selectMap(this.layer, this.head));
	}

	/** The arithmetic of a cell that was chosen, here or by the URL. */
	showChosenCell() {
		if (!this.state.w) this.loadBoard(this.response.result);
	}

	onSelect({ mapRow, mapColumn, row, column }) {
		const { tileSize } = this.maps.data;
		const { layer, head, query: previousQuery } = this;
		this.layer = this.isLong ? layer : mapRow;
		this.head = mapColumn;
		[this.query, this.key] = [row < 0 ? null : row * tileSize, column < 0 ? null : column * tileSize];
		this.shell.setState({ l: this.layer, h: this.head, q: this.query, k: this.key });
		if (this.layer !== layer || this.head !== head) {
			this.drawAblation();
			this.showSameHead();
		}
		this.showChosenCell();
		if (this.isLong && tileSize > 1 && previousQuery !== this.query) this.tabs.choose("attention", false);
	}

	/** Whether switching a head off can be seen: in the next token. */
	canSwitch() {
		return Boolean(this.response?.result.next_tokens?.length);
	}

	async drawAblation() {
		const { layer, head } = this;
		const isOff = this.ablatedHeads.some((ablated) => ablated.layer === layer && ablated.head === head);
		const stack = this.response?.result.target ? "decoder: self-attention, " : "";
		const nameOf = (ablated) => `${stack}layer ${ablated.layer}, head ${ablated.head}`;
		const chips = this.ablatedHeads.map((ablated) =>
			button(`${nameOf(ablated)} ×`, () => this.toggleHead(ablated.layer, ablated.head), {
				"aria-label": `Switch ${nameOf(ablated)} on`,
			}),
		);
		const effect = element("div", { role: "status" });
		fill(
			this.ablationPanel,
			nextTokenLine(this.response?.result.next_tokens),
			flexRow(
				this.canSwitch() &&
					button(`Switch ${nameOf(this)} ${isOff ? "on" : "off"}`, () => this.toggleHead(layer, head), {
						"aria-pressed": isOff,
					}),
				chips.length > 0 && element("span.quiet", "off:"),
				chips,
				!this.isRecurrent && button("This row step by step", () => this.tabs.choose("steps")),
				!this.isLong &&
					button("Whole words", () => this.toggleWords(), {
						"aria-pressed": Boolean(this.state.w),
						title: "Merge sub-word tokens into words",
					}),
			),
			effect,
		);
		if (!this.ablatedHeads.length) return;
		await this.shell.attempt(async () => {
			fill(effect, effectPanel(await this.requestLook({ view: "effect", layers: [layer], heads: [head] })));
		}, effect);
	}

	/** Show words or tokens; the chosen cell stays where it is: a token's word, or a word's last token. */
	toggleWords() {
		const groups = (this.response?.result.target ?? this.response?.result.tokens)?.word_positions ?? [];
		const toWord = (token) => groups.findIndex((positions) => positions.includes(token));
		const convert = (index) => (index === null ? null : this.state.w ? (groups[index]?.at(-1) ?? null) : toWord(index));
		[this.query, this.key] = [convert(this.query), convert(this.key)];
		this.state.w = this.state.w ? "" : "1";
		this.shell.setState({ w: this.state.w, q: this.query, k: this.key });
		this.tabs.choose("attention", false);
	}

	/** The arithmetic of the chosen cell, or of the strongest key of its row, and the numbers of its head as a table. */
	loadBoard({ tokens, target }, query = this.query, key = this.key) {
		const { layer, head } = this;
		const isChosen = query !== null && !this.isLong;
		const stacks = target ? ["decoder"] : ["decoder", "encoder"];
		const names = ["attention", "cross_attention"].flatMap((part) =>
			stacks.map((stack) => headName({ stack, layer, part, head })),
		);
		const body = this.requestBody({ edit: ablations(this.ablatedHeads), head_numbers: names });
		const name = JSON.stringify(body);
		return this.runBoard(
			(options) => isChosen && (name === this.known?.name ? this.known.pass : this.shell.forwardPass(body, options)),
			(pass) => {
				this.board.write();
				fill(this.headNumbers);
				if (!pass) return;
				this.known = { name, pass }; // of all rows of these heads
				const heads = pass.head_numbers;
				const found = heads.find(({ part }) => part === "attention") ?? heads[0];
				const { part, steps: matrices, ...formula } = found ?? {};
				if (!matrices?.weights[query]) return;
				const queries = (target ?? tokens).pieces;
				const keys = part === "cross_attention" ? tokens.pieces : queries;
				const title = ["model", `layer ${layer}`, `head ${head}`];
				this.board.show(
					{ ...matrices, ...formula, queries, keys, title },
					query,
					key ?? argmax(matrices.weights[query]),
				);
				const rows = matrices.weights.map((row, at) => [queries[at], ...row.map((weight) => writeNumber(weight))]);
				fill(
					this.headNumbers,
					tableDetails(table(`Weights of layer ${layer}, head ${head}`, ["query ↓ key →", ...keys], rows)),
				);
			},
		);
	}

	toggleHead(layer, head) {
		this.ablatedHeads = toggled(this.ablatedHeads, { layer, head });
		this.state.off = writeHeads(this.ablatedHeads);
		this.shell.setState({ off: this.state.off || null }, { push: true });
		this.tabs.choose(this.state.tab ?? "attention", false);
	}

	showSteps() {
		const { query } = this.queryField();
		return this.showView(this.stepsFields(), (response, container) => {
			const { target, tokens, caveat } = response.result;
			const queryLabel = this.query !== null && element("span", "query: ", bdi((target ?? tokens).pieces[query] ?? ""));
			const showAllRows = () => {
				this.query = null;
				this.shell.setState({ q: null, k: null });
				this.tabs.choose("steps", false);
			};
			const head = flexRow(
				element("b", `Layer ${this.layer}, head ${this.head}`),
				queryLabel,
				button("All rows", showAllRows, { disabled: this.query === null }),
				button("Back to the map", () => this.tabs.choose("attention")),
			);
			fill(container, head, this.board.element, renderDocument(response), caveatLine(caveat));
			this.loadBoard({ tokens, target }, query ?? null, this.state.w ? null : this.key);
		});
	}

	showHeads() {
		return this.showView(this.rankFields(), (response, container) => {
			const show = (by) => {
				this.state.by = by;
				this.shell.setState({ by });
				fill(
					container,
					rankingPanel(response, by ?? "sharpness", (layer, head) => this.openHead(layer, head), show),
				);
			};
			show(this.state.by);
		});
	}

	openHead(layer, head) {
		[this.layer, this.head] = [layer, head];
		this.shell.setState({ l: layer, h: head }, { push: true });
		this.tabs.choose("attention");
	}

	showLens() {
		return this.showView({ view: "lens" }, (response, container) => fill(container, renderDocument(response)));
	}
}

/** The figure of layer and head in the URL: of an encoder-decoder, the self-attention of the decoder. */
function mainMaps(rendered) {
	const figures = [...rendered.querySelectorAll("peasy-maps")];
	const heading = (maps) => maps.closest(".figure").previousElementSibling?.textContent ?? "";
	return figures.find((maps) => heading(maps).startsWith("Decoder: self")) ?? figures[0] ?? null;
}
