// Page Work: attention and other networks by hand, step by step, with the library's examples or the user's own numbers.

import { Board, STEPS } from "/web/render/board.js";
import { argmax, clamp } from "/web/render/numbers.js";
import { button, card, details, element, field, fieldRow, fill, quiet, select } from "../element.js";
import { latestOnly } from "../latest.js";
import { MatrixTable, readNumber } from "../matrix.js";
import { latex, markdown, csv, numpy } from "../work/copy.js";
import { baseName, blocksOf, equationOf, headsOf, isNetwork, sectionsOf, usedCells } from "../work/equation.js";
import {
	BLANK_EXAMPLE,
	compact,
	fieldOf,
	fromUrlText,
	resizeExample,
	scoringOf,
	toUrlText,
	withNumber,
	withPastedCells,
} from "../work/example.js";
import { Player } from "/web/render/player.js";
import { quizPanel } from "../work/quiz.js";
import { scalePanel } from "../work/scale.js";
import { showOptions } from "../work/options.js";

export const page = { text: "Any sentence of at least two words, or choose an example below", ofText: ["d", "c"] };

const DEFAULT_EXAMPLE = "i-love-ai";
const STEP_TIME = 1800; // milliseconds per step while playing

export class Page {
	/** @type {Record<string, any>[]} */
	library;

	constructor(place, shell) {
		this.shell = shell;
		this.header = element("header", element("h1", "Work"));
		this.options = element("div.row.options");
		this.formulaDetails = details("Change the formula: scoring, normalisation, mask, scale", this.options);
		this.stepBar = element("nav.step-bar", { "aria-label": "Steps" });
		this.equations = element("section.board", { "aria-live": "off" });
		this.board = new Board(
			(row, key) => this.followBoard(this.board.step, row, key),
			(step) => this.followBoard(step, this.board.row, this.board.key),
		);
		this.player = new Player(() => this.moveStep(1), STEP_TIME);
		this.board.element.classList.add("card", "sum-card");
		this.extras = element("div.more");
		place.append(this.header, this.formulaDetails, this.stepBar, this.equations, this.board.element, this.extras);
		this.runLatest = latestOnly(shell, this.equations);
		shell.onStateChange((newState) => this.start(newState));
	}

	close() {
		this.player.stop();
		this.board.write();
	}

	/** Register keys, exports and copies: only once there are steps that they can act on. */
	enableKeys() {
		const { shell } = this;
		shell.keys.add([
			...["ArrowLeft", "["].map((key) => ({ key, label: "Previous step", run: () => this.moveStep(-1) })),
			...["ArrowRight", "]"].map((key) => ({ key, label: "Next step", run: () => this.moveStep(1) })),
			{ key: ",", label: "Previous head", run: () => this.moveHead(-1) },
			{ key: ".", label: "Next head", run: () => this.moveHead(1) },
			{ key: " ", label: "Play the steps, or stop", run: () => this.togglePlay() },
		]);
		shell.setExports(() => ({ command: "explain", body: this.requestBody() }));
		shell.setCopyItems(() => this.copyItems());
	}

	async start(state) {
		this.state = state;
		this.ownExample = state.d ? fromUrlText(state.d) : null;
		this.sectionNumber = Number(state.s) || 0;
		this.chosenHead = Number(state.h) || 0;
		if (!this.library) {
			const requests = ["examples", "textbook"].map((name) => this.shell.request(name));
			const [{ examples }, { work }] = (await Promise.all(requests)).map(({ result }) => result);
			this.texts = work;
			this.library = examples.sort((a, b) => a.topic.localeCompare(b.topic)); // attention first, then other networks
		}
		await this.load();
	}

	/** The example to compute is the user's numbers, a sentence, or a name of the library. */
	requestBody() {
		const { t, x } = this.state;
		const source = this.ownExample ? compact(this.ownExample) : t?.trim() || x || DEFAULT_EXAMPLE;
		return { source, decimals: this.decimals() };
	}

	decimals() {
		return clamp(Number(this.state.n ?? 4) || 0, 0, 8);
	}

	load() {
		return this.runLatest(
			(options) => this.shell.request("explain", { ...this.requestBody(), html: true }, options),
			({ result, html }) => {
				this.shell.clearError();
				this.result = result;
				this.example = { ...result.example, ...this.ownExample };
				this.formulas = formulasOf(html);
				this.drawAgain();
			},
		);
	}

	/** Draw, with the focus where it was: who types numbers or chooses with the arrow keys goes on. */
	drawAgain() {
		const part = document.activeElement.closest("header, .options, .board");
		const controls = () => [...(part?.querySelectorAll("input, select, button") ?? [])];
		const at = controls().indexOf(document.activeElement);
		this.draw();
		/** @type {HTMLElement} */ (controls()[at])?.focus();
	}

	draw() {
		const heads = headsOf(this.result.steps);
		this.shownHead = heads.includes(this.chosenHead) ? this.chosenHead : (heads[0] ?? 0);
		this.isNetwork = isNetwork(this.example);
		this.sections = this.isNetwork ? blocksOf(this.result.steps) : sectionsOf(this.result.steps, this.shownHead);
		const lastIndex = this.sections.length - 1;
		const index = this.sectionIndex();
		this.sectionNumber = this.sections[index < 0 ? (this.sectionNumber ? lastIndex : 0) : index].number;
		this.drawHeader(heads);
		this.formulaDetails.hidden = this.isNetwork;
		if (!this.isNetwork)
			showOptions(
				this.options,
				this.example,
				(changes) => this.changeExample({ ...this.example, ...changes }),
				this.result.steps,
			);
		this.drawStepBar();
		this.drawBoard();
		this.drawExtras();
		this.enableKeys();
	}

	drawHeader(heads) {
		const named = this.library.map(({ name, title }) => [name, title]);
		const current = this.ownExample ? "" : this.state.t ? "sentence" : this.state.x || DEFAULT_EXAMPLE;
		const sentence = this.state.t ? [["sentence", "the sentence above"]] : [];
		const extra = this.ownExample ? [["", "own numbers"]] : sentence;
		const exampleSelect = select([...extra, ...named], current, (name) => this.chooseExample(name));
		const headField =
			heads.length > 0 &&
			field(
				"head",
				select(
					heads.map((head) => [head, `head ${head}`]),
					this.shownHead,
					(head) => this.chooseHead(Number(head)),
				),
			);
		const setDecimals = (n) => {
			this.state = { ...this.state, n };
			this.shell.setState({ n: n === "4" ? null : n });
			this.load();
		};
		const { title, description, source, note } = this.example;
		const hint = this.isNetwork
			? "Every number can be clicked."
			: "Attention on paper: every number can be clicked, and every input changed.";
		fill(
			this.header,
			element("h1", title || "Work"),
			element("p.lead", `${hint}${description ? ` ${description}.` : ""}`),
			note ? quiet(note) : "",
			source ? quiet(`From: ${source}`) : "",
			fieldRow(
				field("example", exampleSelect),
				headField,
				field("decimals", select([0, 1, 2, 3, 4, 6, 8], this.decimals(), setDecimals)),
				button(
					"Own numbers",
					() => this.changeExample(this.ownExample ?? (this.example.x ? this.example : BLANK_EXAMPLE)),
					{ title: "Change or paste numbers" },
				),
				!this.isNetwork && button("Quiz", () => this.toggleQuiz(), { "aria-pressed": Boolean(this.state.quiz) }),
			),
		);
	}

	chooseExample(name) {
		if (name === "sentence" || name === "") return;
		this.shell.setState(
			{ x: name === DEFAULT_EXAMPLE ? null : name, t: null, d: null, s: this.sectionNumber, h: null },
			{ push: true },
		);
		this.start(this.shell.state);
	}

	/** Change numbers or settings: recomputed by the server, and stored in the URL. */
	changeExample(example) {
		this.ownExample = compact(example);
		this.example = example; // another change may come before the response
		const text = toUrlText(this.ownExample);
		if (text === null) this.shell.bar.showNote("Too large for a link: export it as JSON to keep it.");
		this.shell.setState({ d: text, t: null, x: null, s: this.sectionNumber });
		this.state = { ...this.shell.state, d: text ?? "" };
		return this.load();
	}

	drawStepBar() {
		const steps = this.sections.map(({ number, title, label }) =>
			element(
				"li",
				button([element("b", `${number} `), title], () => this.showSection(number), {
					"aria-current": number === this.sectionNumber ? "step" : null,
					"aria-label": `Step ${number}: ${label}`,
				}),
			),
		);
		const index = this.sectionIndex();
		fill(
			this.stepBar,
			button("◀", () => this.moveStep(-1), { "aria-label": "Previous step", disabled: index === 0 }),
			element("ol", steps),
			button("▶", () => this.moveStep(1), { "aria-label": "Next step", disabled: index === this.sections.length - 1 }),
			element("span.quiet", `step ${index + 1} of ${this.sections.length}`),
		);
	}

	showSection(number) {
		this.sectionNumber = number;
		this.shell.setState({ s: number });
		this.drawStepBar();
		this.drawBoard();
		this.drawExtras();
		this.shell.announce(`Step ${number}: ${this.section().label}`);
	}

	sectionIndex() {
		return this.sections.findIndex(({ number }) => number === this.sectionNumber);
	}

	section() {
		return this.sections[this.sectionIndex()];
	}

	/** Show the next or previous step; false if there is none. */
	moveStep(change) {
		const next = this.sections[this.sectionIndex() + change];
		if (next) this.showSection(next.number);
		return Boolean(next);
	}

	/** Play the arithmetic of the chosen weight through its steps; without one, step after step. */
	togglePlay() {
		if (this.board.head) return this.board.togglePlay();
		if (!this.player.timer && !this.moveStep(1)) this.showSection(this.sections[0].number);
		return this.player.toggle();
	}

	chooseHead(head) {
		this.chosenHead = head;
		this.shell.setState({ h: head });
		this.draw();
	}

	moveHead(change) {
		const heads = headsOf(this.result.steps);
		const next = heads[heads.indexOf(this.shownHead) + change];
		if (next) this.chooseHead(next);
	}

	drawBoard() {
		const isQuiz = Boolean(this.state.quiz) && !this.isNetwork;
		const isGiven = this.section().steps.every(({ name }) => fieldOf(baseName(name), this.example));
		const hint = isGiven
			? "These numbers are given: change any of them. All others are calculated from them in the next steps."
			: "Click a number, or use the arrow keys, to see how it is calculated.";
		this.matrices = new Map();
		fill(
			this.equations,
			this.section().steps.map((step) => this.drawEquation(step, isQuiz)),
		);
		const [name, ...cell] = (this.state.c ?? "").split(",");
		const matrix = this.matrices.get(name);
		if (!matrix || isQuiz)
			return this.board.write(quiet(isQuiz ? "In a quiz, the arithmetic comes with the marks." : hint));
		const [row, column] = cell.map(Number);
		matrix.selectCell(row, column);
		return this.explainCell(matrix.spec.step, matrix.operands, row, column);
	}

	/** Show the table of a step of the board, with its cell; the sum has no column for the key. */
	followBoard(index, row, key) {
		const step = this.findStep(STEPS[index]);
		if (!step) return;
		this.state.c = [step.name, row, index === 4 ? 0 : key].join();
		this.showSection(this.sections.find(({ steps }) => steps.includes(step)).number);
	}

	/** A step of the shown head. */
	findStep(name, steps = this.result.steps) {
		const wanted = this.shownHead ? `head-${this.shownHead}.${name}` : name;
		return steps.find((step) => step.name === wanted);
	}

	/**
	 * The numbers of the shown head for the board, if it is attention by dot products and softmax.
	 * @returns {Record<string, any> | null}
	 */
	boardHead() {
		const { normalise = "softmax", positions = "none", scale, softcap, sinks, bias } = this.example;
		const scoring = scoringOf(this.example);
		const isUsual = scoring.endsWith("dot") && normalise === "softmax" && positions === "none";
		const names = ["query", "key", "value", "weights", "context"];
		const steps = names.map((name) => this.findStep(name));
		const masked = this.findStep("masked") ?? this.findStep("scaled");
		if (!isUsual || !masked || !steps.every(Boolean)) return null;
		const weights = steps[3];
		return {
			...Object.fromEntries(steps.map(({ values }, index) => [names[index], values])),
			masked: masked.values,
			captions: Object.fromEntries(this.result.steps.map((step) => [baseName(step.name), step.description])),
			...{ softcap, bias, sink: sinks?.[Math.max(0, this.shownHead - 1)] },
			divisor: 1 / (scale ?? (scoring === "dot" ? 1 : steps[0].values[0].length ** -0.5)),
			queries: weights.rows,
			keys: weights.columns,
			title: [this.example.title, ...(this.shownHead ? [`head ${this.shownHead}`] : [])],
		};
	}

	drawEquation(step, isQuiz) {
		const operands = [];
		const parts = equationOf(step, this.result.steps, this.example).map((part) => {
			if (typeof part === "string") return element("span.sign", part);
			const matrix = new MatrixTable(this.matrixSpec(part.step, part.transposed));
			operands.push({ ...part, matrix });
			return matrix.element;
		});
		const editedField = fieldOf(baseName(step.name), this.example);
		const spec = {
			...this.matrixSpec(step),
			math: this.formulas.get(step.name)?.cloneNode(true),
			caption: step.description,
		};
		if (isQuiz && !editedField && step.values.length * step.columns.length <= 400) {
			return element(
				"div.equation",
				parts,
				quizPanel(step, spec, this.example, this.shell, () => this.drawBoard()),
			);
		}
		const matrix = new MatrixTable(
			editedField ? spec : { ...spec, onSelect: (row, column) => this.explainCell(step, operands, row, column, true) },
		);
		matrix.operands = operands;
		this.matrices.set(step.name, matrix);
		return element(
			"div.equation",
			parts,
			element("div", matrix.element, editedField && this.sizeButtons(editedField, step)),
		);
	}

	matrixSpec(step, transposed = false) {
		const { name, rows, columns, values, row_axis: rowAxis, column_axis: columnAxis } = step;
		const shown = { decimals: this.decimals(), shaded: baseName(name) === "weights" };
		const spec = { ...shown, step, name, rows, columns, values, rowAxis, columnAxis };
		if (transposed)
			return {
				...spec,
				name: `${name}ᵀ`,
				rows: columns,
				columns: rows,
				values: columns.map((_, column) => values.map((line) => line[column])),
				rowAxis: columnAxis,
				columnAxis: rowAxis,
			};
		const editedField = fieldOf(baseName(name), this.example);
		return { ...spec, edit: editedField && this.editHandlers(editedField) };
	}

	editHandlers(editedField) {
		const { tokens } = this.example;
		const renameToken = (row, name) =>
			this.changeExample({ ...this.example, tokens: tokens.with(row, name || tokens[row]) });
		return {
			change: (row, column, value) => this.changeExample(withNumber(this.example, editedField, row, column, value)),
			paste: (row, column, grid) =>
				this.changeExample(withPastedCells(this.example, editedField, row, column, grid, readNumber)),
			rename: ["x", "q", "weights"].includes(editedField) ? renameToken : undefined,
		};
	}

	sizeButtons(editedField, step) {
		const [height, width] = [step.values.length, step.values[0].length];
		const resizeTo = (newHeight, newWidth) => () =>
			newHeight > 0 &&
			newWidth > 0 &&
			this.changeExample(resizeExample(this.example, editedField, newHeight, newWidth));
		const rowsChange = ["x", "q", "source_x"].includes(editedField);
		return element(
			"div.row.small",
			rowsChange && button("+ row", resizeTo(height + 1, width)),
			rowsChange && button("− row", resizeTo(height - 1, width), { disabled: height < 2 }),
			button("+ column", resizeTo(height, width + 1)),
			button("− column", resizeTo(height, width - 1), { disabled: width < 2 }),
			element("span.quiet", "Paste cells from a spreadsheet into any cell."),
		);
	}

	/** Show the arithmetic of one number, and highlight what it depends on in the operands. */
	async explainCell(step, operands, row, column, saveInUrl = false) {
		operands.forEach((operand) => operand.matrix.highlight(usedCells(step, operand, row, column)));
		const cell = `${step.name},${row},${column}`;
		if (saveInUrl) this.shell.setState({ c: cell });
		this.state.c = cell;
		await this.shell.attempt(async () => {
			const { result } = await this.shell.request("explain", { ...this.requestBody(), cell: [step.name, row, column] });
			if (this.state.c !== cell) return;
			const { title, lines } = result.cell;
			const index = STEPS.indexOf(baseName(step.name));
			const head = index < 0 || this.isNetwork ? null : this.boardHead();
			if (!head)
				this.board.write(
					element("strong", title),
					lines.map((line) => element("pre", line)),
				);
			else
				this.board.show(
					{ ...head, lines: { [index]: lines.join("\n") } },
					row,
					index === 4 ? argmax(head.weights[row]) : column,
					index,
				);
			this.shell.announce([title, ...lines].join("\n"));
		}, this.board.element);
	}

	toggleQuiz() {
		this.shell.setState({ quiz: this.state.quiz ? null : 1 });
		this.state = this.shell.state;
		this.draw();
	}

	drawExtras() {
		const panels = [];
		const onDimension = (dimension) => {
			this.state.dk = dimension;
			this.shell.setState({ dk: dimension });
		};
		const section = this.isNetwork ? 0 : this.sectionNumber;
		if (section === 4) panels.push(scalePanel(this.shell, this.texts.scale, Number(this.state.dk) || 64, onDimension));
		if (section === 5 && this.result.steps.some((step) => baseName(step.name) === "scores"))
			panels.push(this.normalisationPanel());
		fill(this.extras, panels);
	}

	/** The same scores normalised by softmax and by the sum, side by side; an error is shown in its place. */
	normalisationPanel() {
		const sides = [
			["softmax", "softmax"],
			["sum", "division by the sum"],
		].map(([normalise, name]) => {
			const container = element("div");
			this.shell.attempt(async () => fill(container, await this.normalisedMatrix(normalise, name)), container);
			return container;
		});
		return card(
			"Softmax or division by the sum",
			element("h2", "Softmax or division by the sum?"),
			quiet(this.texts.sum),
			element("div.equation", sides),
		);
	}

	async normalisedMatrix(normalise, name) {
		const { result } = await this.shell.request("explain", {
			source: { ...compact(this.example), normalise },
			decimals: this.decimals(),
		});
		const weights = this.findStep("weights", result.steps);
		const outOfRange = weights.values.flat().some((value) => value < 0 || value > 1);
		const caption = outOfRange ? "Some weights are below 0 or above 1." : "Every weight is between 0 and 1.";
		return new MatrixTable({ ...this.matrixSpec(weights), edit: null, name, caption, shaded: true }).element;
	}

	copyItems() {
		const step = this.section().steps.at(-1);
		const writers = { LaTeX: latex, Markdown: markdown, CSV: csv, NumPy: () => numpy([step]) };
		const items = Object.entries(writers).map(([name, write]) => ({
			label: `${name} (${step.name})`,
			text: write(step, this.decimals()),
		}));
		return [...items, { label: "NumPy (all steps)", text: () => numpy(this.result.steps) }];
	}
}

function formulasOf(html) {
	const parsed = new DOMParser().parseFromString(html, "text/html");
	const formulas = new Map();
	parsed.querySelectorAll("figure.matrix caption").forEach((caption) => {
		const math = caption.querySelector(".formula math");
		if (math) formulas.set(caption.querySelector(".name")?.textContent, document.importNode(math, true));
	});
	return formulas;
}
