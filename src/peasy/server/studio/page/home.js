// Page Home: one sentence through a whole model, drawn from its numbers; heads open to the arithmetic of one weight.

import { FlowView, ablations, headName, readHeads, scrollTo, word, writeHeads } from "/web/render/flowview.js";
import { writeNumber } from "/web/render/numbers.js";
import {
	button,
	element,
	fill,
	flexRow,
	mainButton,
	openDialog,
	quiet,
	slider,
	table,
	tableDetails,
} from "../element.js";
import { chapterPanel, glossaryLink } from "../home/textbook.js";
import { latestOnly } from "../latest.js";

export const page = { model: "look", text: "A sentence for the model", ofText: ["q", "k", "g", "s"] };

const PRESETS = [
	{ label: "What does “it” mean?", m: "stories", t: "The pizza came out of the oven and it" },
	{ label: "Copy what came before", m: "repeats", t: "q w e r t y u i o p q w e r t y" },
	{ label: "3 days ago → French", m: "locales-fr", t: "3 days ago" },
	{ label: "Which sentences are alike?", m: "sentences", t: "My phone broke, great." },
];
const SMALL = 3e7; // parameters times letters of the text, up to which picture, story and arithmetic are one request

export class Page {
	base = null;
	baseKey = "";
	shownOff = [];
	earlier = []; // texts before each token that was added
	/** @type {any} another head to open in the next picture */
	opening = null;

	constructor(place, shell) {
		this.shell = shell;
		this.view = new FlowView({
			pass: (off) => this.setOff(off),
			head: (open) => this.requestHead(open),
			onChange: (changes, push) => this.setState(changes, push),
			rail: () => this.railItems(),
			nextToken: (piece) => this.addToken(piece),
			glossaryLink,
		});
		this.book = element("div");
		this.numbers = element("div");
		this.view.element.append(this.numbers);
		this.checkpoints = element("div.checkpoints");
		this.view.rail.before(this.checkpoints);
		this.bookButton = mainButton("Textbook: what you see, in ten steps", () =>
			this.openChapter(this.state.ch ? -1 : 0),
		);
		this.presets = element("div.row.presets", { role: "group", "aria-label": "Examples" });
		this.title = element("h1", "One sentence through a Transformer");
		this.lead = element("p.lead");
		place.append(
			element(
				"div.row.between",
				this.title,
				flexRow(
					button("Share", () => this.share()),
					this.bookButton,
				),
			),
			this.lead,
			this.presets,
			element("div.home", this.view.element, this.book),
		);
		this.runLatest = latestOnly(shell, this.view.element);
		shell.onStateChange((state) => this.start(state));
	}

	close() {
		this.view.board.write();
		document.body.classList.remove("lecture");
	}

	async start(state) {
		this.state = { ...state };
		this.earlier = [];
		this.view.cached = undefined;
		const [entries, { result }] = await Promise.all([
			this.shell.bar.listModels("look"),
			this.texts ? { result: this.texts } : this.shell.request("textbook"),
		]);
		this.texts = result;
		if (!this.base) this.drawLead("decoder");
		this.models = entries.map(({ name }) => name);
		const first = PRESETS.find(({ m }) => this.models.includes(m));
		this.name = state.m ?? first?.m ?? (await this.shell.modelName("look"));
		const entry = entries.find(({ name }) => name === this.name);
		this.isRun = entry?.source === "run";
		await this.drawCheckpoints(Number(state.ck));
		this.view.similar = null;
		this.text =
			state.t?.trim() || (PRESETS.find(({ m }) => m === this.name)?.t ?? "The pizza came out of the oven and it");
		this.isSmall = entry?.parameters * this.text.length < SMALL;
		this.shell.bar.setDefaults({ m: this.name, t: this.text });
		this.view.off = readHeads(state.off);
		this.opening = { open: state.l === undefined ? null : headFromUrl(state) };
		this.drawBook();
		await this.load();
	}

	drawPresets() {
		const known = PRESETS.filter(({ m }) => this.models.includes(m));
		fill(
			this.presets,
			known.map(({ label, m, t }) =>
				button(label, () => this.shell.navigate("home", { m, t, ch: this.state.ch }), {
					"aria-pressed": m === this.name && t === this.text,
				}),
			),
			button("Your own model", () => this.shell.navigate("models")),
		);
	}

	/** Heading and first sentence; of a translator with what it wrote. */
	drawLead(kind, stacks = []) {
		const { leads, real } = this.texts.home;
		const network = kind === "recurrent-translator" ? "an RNN with attention" : "a Transformer";
		this.title.textContent = `${this.name === "repeats" ? "A row of letters" : "One sentence"} through ${network}`;
		const written = stacks.length > 1 ? ` “${stacks[1].tokens.text}”.` : "";
		this.lead.textContent = `${leads[kind] ?? leads.translator}${written} ${real}`;
	}

	setState(changes, push = false) {
		for (const [name, value] of Object.entries(changes)) this.state[name] = value ?? undefined;
		this.shell.setState({ m: this.name, t: this.text, ...changes }, { push });
	}

	body(fields = {}) {
		return { model: this.model, text: this.text, ...fields };
	}

	requestPass(fields, options = {}) {
		const answer_row = this.isCurrent() ? this.base.answer_row : null;
		return this.shell.forwardPass(this.body({ answer_row, ...fields }), options);
	}

	/** Whether the picture is of this text: not after a failed request. */
	isCurrent() {
		return this.baseKey === JSON.stringify(this.body());
	}

	/** Request and draw the picture; the head that matters is searched for while it can be seen already. */
	load() {
		const { view } = this;
		const { off } = view;
		const edit = ablations(off);
		const key = JSON.stringify(this.body());
		this.drawPresets();
		[this.temperature, view.warmed] = [1, null];
		const whole = this.isSmall ? { story: true, head_numbers: ["story"] } : {};
		const request = async (options) => {
			const base = this.isCurrent() ? this.base : await this.requestPass(whole, options);
			const fields = { edit, answer_row: base.answer_row };
			return [base, edit.length > 0 && (await this.requestPass(fields, options))];
		};
		return this.runLatest(
			(options) =>
				request(options).catch((error) => {
					if (error.name !== "AbortError") view.off = this.shownOff;
					throw error;
				}),
			([base, edited]) => {
				this.shell.clearError();
				Object.assign(view, this.opening);
				if (this.baseKey !== key) view.note = "";
				[this.base, this.baseKey, this.shownOff, this.opening] = [base, key, off, null];
				this.drawLead(base.model_kind, base.stacks);
				const isChosen = view.open !== null;
				view.show(edited || base, base, this.state);
				this.drawNumbers();
				this.enableKeys();
				const isMissing = !this.isSmall && !view.note && base.story === null && base.next_tokens.length > 0;
				if (isMissing && !(isChosen && this.model !== this.name)) this.findStory(key, isChosen);
			},
		);
	}

	/** Open the head that matters most, unless another one was chosen meanwhile. */
	async findStory(key, isChosen) {
		const opened = this.view.open;
		this.view.note = "Looking for the head that matters most …";
		const found = await this.shell.attempt(() => this.requestPass({ story: true, answer_row: null }));
		if (this.baseKey !== key) return undefined; // the note is that of a newer search
		this.view.note = "";
		if (!found) return this.view.draw();
		const { story, answer_row, next_tokens, stacks } = found;
		const isSame = answer_row === this.base.answer_row; // a translation's answer is now that of its story
		Object.assign(this.base, { story, answer_row, next_tokens, stacks });
		if (!isSame && this.shownOff.length) return this.load();
		if (!isChosen && this.view.open === opened) this.view.open = null;
		return this.view.show(this.view.pass, this.base, this.state);
	}

	async requestHead(open) {
		if (!this.isCurrent()) {
			this.opening = null;
			return this.load();
		}
		const [edit, name] = [ablations(this.shownOff), headName(open)];
		const { pass } = this.view;
		const { head_numbers: heads, next_tokens: next } = pass;
		const gradients = Boolean(this.state.g) && next.length > 0;
		const known = heads.find((one) => headName(one) === name && Boolean(one.steps.gradient) === gradients);
		if (known) return known;
		return this.shell.attempt(async () => {
			const { head_numbers: found, loss } = await this.requestPass({ edit, head_numbers: [name], gradients });
			heads.unshift(...found);
			if (!found.length) this.view.showNote("This head has no numbers to show.");
			pass.loss = loss ?? pass.loss;
			return found[0];
		}, this.view.board.element);
	}

	railItems() {
		const { layer, head } = this.view.open;
		const { next_tokens: next, stacks } = this.view.pass;
		const look = new URLSearchParams({ m: this.model, t: this.text, l: layer, h: head });
		return [
			next.length > 0 &&
				stacks.length === 1 &&
				next[0].piece !== "<eos>" &&
				button("One more token", () => this.addToken(next[0].piece)),
			this.earlier.length > 0 &&
				button("Undo", () => this.setText(this.earlier.pop()), { title: "Take the token back" }),
			next.length > 0 &&
				slider(
					"temperature",
					{ min: 0.1, max: 2, step: 0.1, value: this.temperature, write: (value) => writeNumber(value, 1) },
					(value) => this.warm(value),
				),
			next.length > 0 &&
				button("Gradients of a training step", () => this.showGradients(!this.state.g), {
					"aria-pressed": Boolean(this.state.g),
					title: "How the loss on this sentence would change with each score of this head",
				}),
			element("a", { href: `look?${look}` }, "All heads as maps (Look)"),
			this.steps.length > 0 &&
				element("a", { href: `train?${new URLSearchParams({ run: this.name })}` }, "Its training"),
		];
	}

	/** The same picture from each checkpoint of a run that is kept. */
	async drawCheckpoints(step) {
		const steps = (this.steps = this.isRun ? await this.requestSteps() : []);
		const last = steps.length - 1;
		const shown = steps.includes(step) ? steps.indexOf(step) : last;
		this.model = shown === last ? this.name : `${this.name}@${step}`;
		const control = slider(
			"Watch the head form: checkpoint after",
			{ min: 0, max: last, value: shown, write: (index) => `step ${steps[index]}` },
			(index) => {
				this.model = index === last ? this.name : `${this.name}@${steps[index]}`;
				this.setState({ ck: index === last ? null : steps[index] });
				return this.load();
			},
		);
		fill(this.checkpoints, last > 0 && control);
	}

	async requestSteps() {
		try {
			return (await this.shell.request("runs", { name: this.name })).result.checkpoints;
		} catch (error) {
			if (error.status !== 404) throw error;
			return [];
		}
	}

	share() {
		const { off, open, row: q, key, step: s } = this.view;
		const texts = this.texts.home.share;
		// the saved page can switch one head of a small model off itself
		const edit = off.length > 1 || !this.isSmall ? ablations(off) : [];
		const body = this.body({ edit, gradients: Boolean(this.state.g) });
		const shown = encodeURIComponent(JSON.stringify({ open, off: edit.length ? [] : off, q, k: key ?? undefined, s }));
		const save = () =>
			this.shell.saveFile({ command: "forward-pass", body }, "html", (html) =>
				html.replace("<peasy-flow>", `<peasy-flow data-view="${shown}">`),
			);
		const call = `peasy.forward_pass(${JSON.stringify(this.model)}, ${JSON.stringify(this.text)}).widget()`;
		const frame =
			'<iframe src="forward-pass.html" width="100%" height="900" title="One sentence through a model"></iframe>';
		const copy = (label, text, explanation) => {
			const onClick = async ({ target }) => {
				await this.shell.copyText(text);
				target.textContent = "Copied ✓";
			};
			return flexRow(button(label, onClick), quiet(explanation));
		};
		openDialog(
			"Share this picture",
			flexRow(mainButton("Save as one HTML file", save), quiet(texts.file)),
			copy("Copy the link", location.href, texts.link),
			copy("Copy the iframe", frame, texts.iframe),
			copy("Copy the notebook line", call, texts.notebook),
		);
	}

	drawNumbers() {
		const { next_tokens: next, stacks, model_kind: kind } = this.view.pass;
		const rows = next.map(({ piece, probability }) => [piece, writeNumber(probability)]);
		const lens = stacks.flatMap(({ layers }) =>
			layers
				.filter((layer) => layer.lens.length)
				.map((layer) => [
					`after layer ${layer.layer}`,
					layer.lens.map(({ piece, probability }) => `${piece} ${writeNumber(probability, 2)}`).join(", "),
				]),
		);
		const tables = [
			table("Next token", ["token", "probability"], rows),
			table("Logit lens", ["layer", "would say"], lens),
		];
		fill(this.numbers, rows.length > 0 && tableDetails(tables));
		if (kind === "encoder") this.drawSimilarity();
	}

	/** How near the vector of an encoder is to those of other sentences. */
	async drawSimilarity() {
		const key = this.baseKey;
		const { compared } = this.texts.home;
		await this.shell.attempt(async () => {
			const { result } = await this.shell.request("embed", { model: this.model, texts: [this.text, ...compared] });
			if (!result?.cosines || key !== this.baseKey) return;
			const items = compared.map((piece, id) => ({ piece, id, probability: result.cosines[0][id + 1] }));
			const nearest = items.reduce((one, other) => (other.probability > one.probability ? other : one));
			const caption = [
				"The mean of all rows is the vector of the sentence. It is nearest to ",
				word(nearest.piece),
				` (cosine ${writeNumber(nearest.probability, 2)}).`,
			];
			this.view.similar = { title: "cosine with", items, caption };
			this.view.draw();
		});
	}

	async showGradients(isShown) {
		const { view } = this;
		this.setState({ g: isShown ? 1 : null, s: isShown ? 5 : null });
		view.step = isShown ? 5 : 0;
		view.draw();
		await view.loadHead();
		if (isShown) view.showArithmetic();
	}

	setOff(heads) {
		this.setState({ off: writeHeads(heads) || null }, true);
		return this.load();
	}

	addToken(piece) {
		if (this.view.pass.stacks.length > 1 || /^<.*>$/.test(piece)) return undefined;
		if (!this.isCurrent()) return this.load();
		this.earlier.push(this.text);
		const text = this.text + piece.replace(/^·/, " ").replaceAll("⏎", "\n");
		return this.setText(text, this.view.pass.stacks[0].tokens.pieces.length);
	}

	/** Show another text; of `cached` rows, keys and values come from the cache. */
	setText(text, cached = undefined) {
		this.view.cached = cached;
		this.text = text;
		this.setState({ t: text, q: null, k: null, l: null, h: null, p: null }, true);
		this.opening = { open: null };
		return this.load();
	}

	async warm(temperature) {
		this.temperature = temperature;
		await this.shell.attempt(async () => {
			const pass = await this.requestPass({ edit: ablations(this.shownOff), temperature });
			if (temperature !== this.temperature) return;
			this.view.warmed = pass.next_tokens;
			this.view.drawAnswer();
		});
	}

	drawBook() {
		const { chapters } = this.texts;
		const number = Number(this.state.ch ?? 0) - 1;
		const isOpen = Boolean(chapters[number]);
		this.bookButton.setAttribute("aria-expanded", String(isOpen));
		fill(this.book, isOpen && chapterPanel(chapters, number, (chapter) => this.openChapter(chapter)));
	}

	async openChapter(number) {
		if (!this.texts) return;
		this.setState({ ch: number < 0 ? null : String(number + 1) }, true);
		this.drawBook();
		const { view } = this;
		if (number < 0 || !view.pass) return;
		const { step, layer, ownKey, cached, gradients } = this.texts.chapters[number];
		const place = this.base.story ?? view.open;
		const { layers, tokens } = view.stackOf(place.stack);
		view.cached = cached ? tokens.pieces.length - 1 : undefined;
		view.step = step ?? 0;
		view.row = this.base.story?.query ?? view.row;
		this.setState({ s: step || null, q: view.row, g: gradients ? 1 : null });
		await (layer === undefined ? view.openHead(place) : view.openLayer(place.stack, layers.at(layer)?.layer ?? 0));
		if (this.state.ch !== String(number + 1)) return; // another chapter was opened meanwhile
		if (ownKey) view.chooseCell(view.row, view.row);
		scrollTo(step === undefined ? this.title : view.board.current);
	}

	/** Register keys and exports: only once there is a picture that they can act on. */
	enableKeys() {
		const { view } = this;
		const isLecture = () => document.body.classList.contains("lecture");
		this.shell.keys.add([
			...view.keys(),
			// a presenter's remote control has these keys
			{ key: "PageUp", label: "Previous step in lecture mode", when: isLecture, run: () => view.moveStep(-1) },
			{ key: "PageDown", label: "Next step in lecture mode", when: isLecture, run: () => view.moveStep(1) },
			{ key: "+", label: "One more token", run: () => this.addToken(view.pass.next_tokens[0]?.piece ?? "<>") },
			{
				key: "f",
				label: "Lecture mode: only the picture, larger letters",
				run: () => document.body.classList.toggle("lecture"),
			},
			{
				key: "Escape",
				label: "Leave lecture mode, or close the textbook",
				run: () => {
					view.board.player.stop();
					if (isLecture()) document.body.classList.remove("lecture");
					else if (this.state.ch) this.openChapter(-1);
				},
			},
		]);
		this.shell.setExports(() => ({
			command: "look",
			body: this.body({ layers: [view.open.layer], heads: [view.open.head] }),
		}));
		this.shell.setCopyItems(() => [{ label: "Numbers as JSON", text: () => JSON.stringify(view.pass) }]);
	}
}

function headFromUrl({ l, h, p }) {
	const [stack, part] = (p ?? "").split(".");
	return { layer: Number(l) || 0, head: Number(h) || 0, stack: stack || null, part: part || null };
}
