// Page Models: list, architecture diagram, proof on the user's texts, API snippets, import.

import { renderDocument } from "../document.js";
import { isPhone } from "/web/render/figure.js";
import { fillAnswer } from "/web/render/flowview.js";
import { ModelFlow } from "/web/render/modelflow.js";
import { formatCount, writeNumber } from "/web/render/numbers.js";
import {
	bdi,
	button,
	details,
	element,
	fill,
	flexRow,
	linesOf,
	mainButton,
	pageHeader,
	quiet,
	table,
	wideField,
} from "../element.js";
import { importForm } from "../models/import.js";
import { snippets } from "../models/snippet.js";
import { tabs } from "../tabs.js";
import { byRank } from "../topbar.js";

const PAGE_LINKS = {
	generate: ["generate?m=", "Generate text"],
	look: ["look?m=", "Inspect attention"],
	embed: ["meaning?m=", "Map texts"],
	words: ["meaning?mw=", "Map words"],
};

export class Page {
	name = "";
	card;

	constructor(place, shell) {
		this.shell = shell;
		this.list = element("div.list");
		this.detail = element("section", { "aria-label": "Model" });
		this.importContainer = element("div");
		place.append(
			...pageHeader(
				"Models",
				"All models on this machine: built in, trained here, imported, or in the Hugging Face cache.",
			),
			this.list,
			this.importContainer,
			this.detail,
		);
		shell.setExports(() =>
			this.tab === "prove" && this.proofBody
				? { command: "prove", body: this.proofBody }
				: { command: "models", body: { name: this.card?.name } },
		);
		shell.setCopyItems(() => (this.card ? this.snippets().map(({ title, text }) => ({ label: title, text })) : []));
		shell.onStateChange((next) => this.show(next));
	}

	async start(state) {
		await this.load();
		await this.show(state);
	}

	async load() {
		const [models, { result }] = await Promise.all([this.shell.request("models"), this.shell.request("textbook")]);
		this.cards = models.result.models.toSorted(byRank);
		this.texts = result.models;
		this.snippets = () => snippets(result.snippets, this.card);
		this.drawList();
		fill(
			this.importContainer,
			importForm(this.shell, this.cards, async (name) => {
				await this.load();
				this.choose(name);
			}),
		);
	}

	drawList() {
		const rows = this.cards.map(({ name, source, model_type, parameters, bytes, error }) => [
			button(name, () => this.choose(name), { class: "text-button" }),
			source,
			...(error ? [`not usable: ${error}`, "", ""] : [model_type, formatCount(parameters), formatBytes(bytes)]),
		]);
		return fill(
			this.list,
			table(
				null,
				["name", "source", "kind", "parameters", "weights"],
				rows,
				this.cards.findIndex(({ name }) => name === this.name),
			),
		);
	}

	choose(name) {
		this.shell.setState({ m: name, tab: null }, { push: true });
		return this.show(this.shell.state);
	}

	async show(state) {
		const card = this.cards.find(({ name }) => name === state.m) ?? this.cards.find(({ error }) => !error);
		if (!card) return fill(this.detail);
		const same = this.card?.name === card.name;
		[this.card, this.name, this.tab] = [card, card.name, state.tab ?? "figure"];
		this.drawList();
		if (same) return this.tabs.choose(this.tab, false);
		this.proofBody = null;
		this.tabs = tabs(
			[
				{ name: "figure", title: "Architecture", show: () => this.showFigure() },
				{ name: "prove", title: "Prove", show: () => this.showProof() },
				{ name: "api", title: "API", show: () => this.showSnippets() },
			],
			(name) => {
				this.tab = name;
				this.shell.setState({ tab: name === "figure" ? null : name });
			},
		);
		const links = card.capabilities.flatMap((capability) => {
			if (!(capability in PAGE_LINKS)) return [];
			const [path, label] = PAGE_LINKS[capability];
			return element("a.chip", { href: `${path}${encodeURIComponent(card.name)}` }, label);
		});
		fill(this.detail, element("h2", bdi(card.name)), flexRow(links), this.tabs.element);
		return this.tabs.choose(this.tab, false);
	}

	/** The model as the same picture as on the home page, with its numbers; its parts as a diagram are folded. */
	async showFigure() {
		const container = element("div");
		await this.shell.attempt(async () => {
			const described = renderDocument(await this.shell.request("models", { name: this.name, html: true }));
			if (!this.card.capabilities.includes("look")) return container.append(described);
			const diagram = described.querySelector("figure.picture:has(svg)");
			const parts = [...described.children];
			const at = parts.indexOf(diagram);
			container.append(parts[0], await this.flowPicture(), ...parts.slice(1, at));
			container.append(details("Parts of the model with their sizes", parts.slice(at)));
			return undefined;
		}, container);
		return container;
	}

	async flowPicture() {
		const text = this.card.capabilities.includes("translate") ? "3 days ago" : "The pizza came out of the oven and it";
		const open = (place) => {
			const head = place ? { l: place[1], h: place[3], p: `${place[0]}.${place[2]}` } : {};
			return this.shell.navigate("home", { m: this.name, t: text, ...head });
		};
		const answer = element("div.bars.answer");
		const flow = new ModelFlow({ token: () => open(), head: (...place) => open(place), layer: () => open() }, answer);
		const result = await this.shell.forwardPass({ model: this.name, text });
		fillAnswer(answer, result.next_tokens);
		requestAnimationFrame(() => flow.show(result, { isOff: () => false, size: 300, narrow: isPhone() }));
		return flow.element;
	}

	showProof() {
		const input = element("textarea", {
			rows: 3,
			maxlength: 20000,
			placeholder: this.texts.prompts,
		});
		const container = element("div", { role: "status" });
		const start = mainButton("Prove", async () => {
			const prompts = linesOf(input.value).slice(0, 8);
			this.proofBody = { model: this.name, ...(prompts.length ? { prompts } : {}) };
			start.disabled = true;
			fill(container, quiet("Comparing execution paths …"));
			await this.shell.attempt(async () => {
				const response = await this.shell.request("prove", { ...this.proofBody, html: true });
				const { passed, verdict } = response.result;
				fill(
					container,
					element("p", { class: `verdict ${passed ? "good" : "bad"}` }, `${passed ? "✓" : "✗"} ${verdict}`),
					renderDocument(response),
				);
			}, container);
			start.disabled = false;
		});
		return element(
			"div",
			element("p.lead", this.texts.prove),
			wideField("texts for the proof", input),
			flexRow(start),
			container,
		);
	}

	showSnippets() {
		return element(
			"div",
			element("p.lead", this.texts.api),
			this.snippets().map(({ title, text }) =>
				element(
					"div.snippet",
					element("h3", title),
					button("Copy", () => this.shell.copyText(text, title), { "aria-label": `Copy ${title}` }),
					element("pre", { tabindex: 0 }, text),
				),
			),
		);
	}
}

function formatBytes(bytes) {
	const size = bytes < 1e6 ? 0 : bytes < 1e9 ? 1 : 2;
	return `${writeNumber(bytes / 1000 ** (size + 1), size)} ${"kMG"[size]}B`;
}
