// Page Generate: tokens one by one, next-token probabilities, attention of each token, KV cache savings.

import { clamp, writeNumber } from "/web/render/numbers.js";
import { byteNote, prefersStills } from "/web/render/figure.js";
import { Player } from "/web/render/player.js";
import { renderDocument } from "../document.js";
import {
	bdi,
	button,
	card,
	element,
	examples,
	field,
	fieldRow,
	fill,
	flexRow,
	mainButton,
	numberInput,
	pageHeader,
	quiet,
	slider,
} from "../element.js";
import { attentionPanel, selfAttentionLayers } from "../generate/attention.js";
import { cachePicture } from "../generate/cache.js";
import { nextTokenPanel } from "../generate/nexttoken.js";
import { headKeys } from "/web/render/moves.js";

export const page = { model: "generate", text: "A prompt for the model to continue", ofText: ["at"] };

const DEFAULT_TEXT = "The pizza came out of the oven and it";
const EXAMPLES = [
	["They wanted the pizza more than the guitar and it"],
	["They wanted the guitar more than the pizza and it"],
];
const TOKEN_INTERVAL = 140; // milliseconds between two tokens, slow enough to follow

export class Page {
	seed = 0;
	maxTokens = 0;
	promptPieces;
	caveat = "";
	endPiece = "<eos>"; // of models with another one, known when it comes

	constructor(place, shell) {
		this.shell = shell;
		this.controls = element("div.card");
		this.tokenLine = element("p.tokens", { "data-arrows": "" });
		this.note = element("p.note");
		this.candidates = card("Next token");
		this.attention = card("Attention");
		this.cache = card("KV cache");
		this.cacheComparison = element("section");
		place.append(
			...pageHeader("Generate", "The model writes one token after the other; see what it could have written, and why."),
			examples("generate", EXAMPLES),
			this.controls,
			this.tokenLine,
			this.note,
			element("div.split", this.candidates, element("div", this.attention, this.cache)),
			this.cacheComparison,
		);
		this.player = new Player(
			() => this.showArrived(),
			prefersStills() ? 0 : TOKEN_INTERVAL,
			(playing) => (this.playButton.textContent = playing ? "Pause" : "Generate"),
		);
		shell.keys.add([
			{ key: " ", label: "Generate or pause", run: () => this.togglePlay() },
			{ key: "n", label: "One token", run: () => this.generateOne() },
			{ key: "ArrowLeft", label: "Previous token", run: () => this.selectPosition(this.position - 1) },
			{ key: "ArrowRight", label: "Next token", run: () => this.selectPosition(this.position + 1) },
			...headKeys((layers, heads) => this.selectHead(this.layer + layers, this.head + heads)),
		]);
		shell.setExports(() => {
			const [seed, max_tokens] = [this.seed, Math.max(this.steps.length, 1)];
			return { command: "trace", body: this.requestBody({ max_tokens, seed }) };
		});
		shell.setCopyItems(() => [{ label: "Text", text: this.fullText() }]);
		shell.onStateChange((state) => this.start(state));
	}

	async start(state) {
		this.close();
		const number = (name, fallback) => (Number.isNaN(Number(state[name] ?? NaN)) ? fallback : Number(state[name]));
		this.sampling = { temperature: number("temp", 0.8), top_k: number("topk", 0), top_p: number("topp", 1) };
		[this.seed, this.maxTokens] = [number("seed", 1), number("n", 24)];
		[this.layer, this.head] = [number("l", 0), number("h", 0)];
		[this.steps, this.pendingSteps, this.promptPieces, this.position] = [[], [], null, 0]; // steps: tokens shown so far
		fill(this.cacheComparison);
		this.drawControls();
		this.model = await this.shell.modelName("generate");
		this.text = state.t?.trim() ? state.t : DEFAULT_TEXT;
		this.shell.bar.setDefaults({ m: this.model, t: this.text });
		const numShown = number("at", -1);
		await this.updateCandidates();
		if (numShown >= 0) await this.generate(true, numShown);
	}

	close() {
		if (this.player.timer) this.player.stop();
		this.streamAbort?.abort();
		this.streamAbort = null;
	}

	requestBody(fields = {}) {
		const { temperature, top_k, top_p } = this.sampling;
		return { model: this.model, text: this.text, temperature, top_p, ...(top_k ? { top_k } : {}), ...fields };
	}

	drawControls() {
		const samplingSlider = (label, name, parameter, range) =>
			slider(label, { write: (value) => writeNumber(value, 2), ...range, value: this.sampling[name] }, (value) => {
				this.sampling[name] = value;
				this.shell.setState({ [parameter]: value });
				this.updateCandidates();
			});
		const countInput = (property, parameter, min, max) =>
			numberInput(min, max, {
				value: this[property],
				onchange: ({ target }) => {
					this[property] = clamp(Number(target.value) || min, min, max);
					this.shell.setState({ [parameter]: target.value });
				},
			});
		this.playButton = mainButton("Generate", () => this.togglePlay());
		fill(
			this.controls,
			flexRow(
				samplingSlider("temperature", "temperature", "temp", { min: 0, max: 2, step: 0.05 }),
				samplingSlider("top-k", "top_k", "topk", { min: 0, max: 50, write: (value) => String(value || "all") }),
				samplingSlider("top-p", "top_p", "topp", { min: 0.05, max: 1, step: 0.05 }),
			),
			fieldRow(
				this.playButton,
				button("One token", () => this.generateOne()),
				button("Start again", () => {
					this.shell.setState({ at: null });
					this.start(this.shell.state);
				}),
				field("seed", countInput("seed", "seed", 0, 1e6)),
				field("tokens", countInput("maxTokens", "n", 1, 200)),
				button("Inspect this text", () => this.shell.navigate("look", { m: this.model, t: this.fullText() })),
			),
		);
	}

	fullText() {
		return this.text + this.steps.map(({ piece }) => piece.replaceAll("·", " ")).join("");
	}

	generatedIds(count = this.steps.length) {
		return this.steps.slice(0, count).map(({ id }) => id);
	}

	/** Whether the token before this position ends the text: nothing follows it. */
	endsAt(position) {
		return this.steps[position - 1]?.piece === this.endPiece;
	}

	async updateCandidates() {
		this.candidatesAbort?.abort();
		if (this.endsAt(this.position))
			return fill(this.candidates, element("h2", "The text has ended"), quiet(`The model wrote ${this.endPiece}.`));
		const abort = (this.candidatesAbort = new AbortController());
		return this.shell.attempt(async () => {
			const response = await this.shell.request(
				"next-token",
				this.requestBody({ generated_ids: this.generatedIds(this.position), html: true }),
				{ signal: abort.signal },
			);
			if (abort !== this.candidatesAbort) return;
			this.shell.clearError();
			const step = this.steps[this.position];
			fill(
				this.candidates,
				element("h2", step ? "Probabilities at this position" : "Next-token probabilities"),
				nextTokenPanel(response, step?.id ?? null, (choice) => this.continueWith(choice)),
			);
			if (!this.steps.length) this.drawTokens();
		}, this.candidates);
	}

	/** The user chooses the token: the step comes from the server, only its token is replaced. */
	async continueWith({ id, piece, probability }) {
		this.player.stop();
		await this.startStream(this.position, 1);
		await this.streamEnd;
		if (!this.pendingSteps.length) return;
		this.pendingSteps = [{ ...this.pendingSteps[0], id, piece, probability }];
		this.showNextStep();
	}

	togglePlay() {
		return this.player.timer ? this.player.stop() : this.generate(false);
	}

	/** Show a token that has arrived; false when there will be no more. */
	showArrived() {
		if (this.pendingSteps.length) this.showNextStep();
		else if (!this.streamAbort) {
			this.updateCandidates();
			this.compareCache();
			return false;
		}
		return true;
	}

	/** Show tokens as they arrive, at a readable pace; with `atOnce` show `numTokens` of them immediately. */
	async generate(atOnce, numTokens = Infinity) {
		this.position = this.steps.length;
		if (!this.streamAbort && !this.pendingSteps.length) await this.startStream(this.steps.length);
		if (atOnce) {
			await this.streamEnd;
			while (this.pendingSteps.length && this.steps.length < numTokens) this.showNextStep(false);
			return this.selectPosition(this.steps.length ? this.steps.length - 1 : 0);
		}
		return this.player.toggle();
	}

	async generateOne() {
		this.player.stop();
		if (this.position < this.steps.length) await this.startStream(this.position);
		this.position = this.steps.length;
		if (!this.pendingSteps.length && !this.streamAbort) await this.startStream(this.steps.length);
		while (!this.pendingSteps.length && this.streamAbort) await new Promise((resolve) => setTimeout(resolve, 25));
		if (this.pendingSteps.length) this.showNextStep();
		this.updateCandidates();
	}

	/** Request tokens after the first `numKept` that are shown; resolves when the stream has started. */
	async startStream(numKept, maxTokens = Math.max(this.maxTokens - numKept, 1)) {
		if (this.endsAt(numKept)) return undefined;
		this.streamAbort?.abort();
		this.steps = this.steps.slice(0, numKept);
		this.pendingSteps = [];
		const abort = (this.streamAbort = new AbortController());
		return new Promise((/** @type {(value?: unknown) => void} */ resolveStarted) => {
			const body = this.requestBody({
				generated_ids: this.generatedIds(),
				max_tokens: maxTokens,
				seed: this.seed + numKept,
			});
			const onEvent = ({ event, data }) => {
				if (abort !== this.streamAbort) return;
				if (event === "start") {
					[this.caveat, this.promptPieces] = [data.caveat, data.pieces.slice(0, data.pieces.length - numKept)];
					resolveStarted();
				} else if (event === "token") this.pendingSteps.push(data);
				else if (data.reason === "eos") this.endPiece = (this.pendingSteps.at(-1) ?? this.steps.at(-1)).piece;
			};
			this.streamEnd = this.shell
				.stream("api/generate/stream", body, onEvent, { signal: AbortSignal.any([abort.signal, this.shell.signal]) })
				.catch((error) => this.shell.showError(error))
				.finally(() => {
					if (abort === this.streamAbort) this.streamAbort = null;
					resolveStarted();
				});
		});
	}

	showNextStep(updateCandidates = true) {
		this.steps.push(this.pendingSteps.shift());
		this.position = this.steps.length;
		this.drawTokens();
		this.drawStep();
		if (updateCandidates && !this.player.timer) this.updateCandidates();
		this.shell.setState({ at: this.steps.length });
	}

	drawTokens() {
		const tokenButton = ({ piece, probability }, index) =>
			button(piece, () => this.selectPosition(index), {
				class: "token",
				"aria-pressed": index === this.position,
				title: writeNumber(probability, 3),
			});
		const caret = button("▮", () => this.selectPosition(this.steps.length), {
			class: "token caret",
			"aria-label": "After the last token",
			"aria-pressed": this.position >= this.steps.length,
		});
		const prompt = (this.promptPieces?.length ? this.promptPieces : [this.text]).map((piece) => [
			element("span.given", piece),
			element("wbr"),
		]);
		fill(this.tokenLine, prompt, this.steps.map(tokenButton), caret);
		this.note.textContent = byteNote(this.promptPieces ?? []);
	}

	selectPosition(position) {
		this.position = clamp(position, 0, this.steps.length);
		this.drawTokens();
		this.drawStep();
		this.updateCandidates();
		if (this.steps[this.position])
			this.shell.announce(`Token ${this.position + 1}: ${this.steps[this.position].piece}`);
	}

	selectHead(layer, head) {
		const layers = selfAttentionLayers(this.steps[0]);
		this.layer = clamp(layer, 0, Math.max(layers.length - 1, 0));
		this.head = clamp(head, 0, (layers[0]?.keys.length ?? 1) - 1);
		this.shell.setState({ l: this.layer || null, h: this.head || null });
		this.drawStep();
	}

	drawStep() {
		const step = this.steps[Math.min(this.position, this.steps.length - 1)];
		if (!step) return;
		const pieces = [...(this.promptPieces ?? []), ...this.steps.map(({ piece }) => piece)];
		fill(
			this.attention,
			element("h2", "Attention when generating ", bdi(step.piece)),
			attentionPanel(
				step,
				pieces,
				this.layer,
				this.head,
				(layer, head) => this.selectHead(layer, head),
				this.caveat ?? "",
			),
		);
		const numLayers = selfAttentionLayers(step).length || 1;
		fill(
			this.cache,
			element("h2", "KV cache"),
			cachePicture(pieces, step, numLayers),
			button("Compare with no cache", () => this.compareCache(true)),
		);
	}

	/** Decode the same tokens with and without KV cache, counted and timed by the server. */
	async compareCache(requested = false) {
		if (!this.steps.length || (!requested && this.steps.length < 2)) return;
		await this.shell.attempt(async () => {
			const response = await this.shell.request("cache-savings", {
				model: this.model,
				text: this.text,
				generated_ids: this.generatedIds(),
				html: true,
			});
			const rendered = renderDocument(response);
			rendered.querySelector("h2")?.remove();
			fill(this.cacheComparison, element("h2", "With and without the KV cache"), rendered);
		}, this.cacheComparison);
	}
}
