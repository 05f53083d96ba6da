// Form of a new run: kind of model, data, size, budget.

import { ApiError } from "../api.js";
import {
	details,
	element,
	field,
	fieldRow,
	fill,
	flexRow,
	numberInput,
	radioGroup,
	select,
	wideField,
} from "../element.js";

const COMPARED_KINDS = ["gpt", "rnn", "cnn", "ngram"];
const PAIRED_KINDS = ["translator", "rnn-translator"];
const UPLOAD_CHUNK = 200000; // characters per request

export class TrainForm {
	constructor(shell, onSubmit) {
		this.shell = shell;
		this.onSubmit = onSubmit;
		this.kind = select([], "", () => this.saveChoices());
		this.data = select([], "", () => this.saveChoices());
		this.size = select([], "", () => this.saveChoices());
		this.file = element("input", { type: "file", accept: ".txt,.tsv,.jsonl,text/*" });
		this.minutes = numberInput(0.05, 1440, { step: "any", value: 1 });
		this.steps = numberInput(1, 1e6);
		this.seed = numberInput(0, 2 ** 31, { value: 0 });
		this.keep = numberInput(1, 100, { placeholder: "3" });
		this.name = element("input", {
			type: "text",
			maxlength: 60,
			pattern: "[A-Za-z0-9][\\w.\\-]*",
			placeholder: "chosen for you",
		});
		this.sentence = element("input", {
			type: "text",
			maxlength: 500,
			class: "wide",
			placeholder: "the first of the validation data",
		});
		this.kindBoxes = COMPARED_KINDS.map((kind) => element("input", { type: "checkbox", value: kind, checked: true }));
		this.submitButton = element("button", { type: "submit", class: "plain main" }, "Start");
		this.several = false;
		this.buildForm();
	}

	buildForm() {
		this.mode = radioGroup(
			"train",
			[
				["one", "one kind"],
				["several", "several kinds, compared"],
			],
			"one",
			(value) => this.setMode(value === "several"),
		);
		this.kindField = field("kind", this.kind);
		this.kindsField = element(
			"fieldset.checks",
			{ hidden: true },
			element("legend", "kinds"),
			this.kindBoxes.map((box) => element("label", box, box.value)),
		);
		this.fileField = field("your text", this.file, ".txt; .tsv with two columns for translators");
		this.fileField.hidden = true;
		this.element = element(
			"form.card",
			{
				"aria-label": "New run",
				novalidate: true,
				onsubmit: (event) => {
					event.preventDefault();
					this.submit();
				},
			},
			flexRow(this.mode),
			fieldRow(
				this.kindField,
				this.kindsField,
				field("data", this.data),
				this.fileField,
				field("size", this.size, "number of layers and width of the vectors"),
				field("minutes", this.minutes, "training stops then"),
				field("steps", this.steps, "instead of minutes"),
				field("seed", this.seed, "same seed, same result"),
				field("name", this.name),
			),
			details(
				"More",
				wideField("sentence whose attention is recorded at every checkpoint", this.sentence),
				field("checkpoints to keep", this.keep, "with more, watch a head form on Home"),
			),
			flexRow(this.submitButton, (this.note = element("span.quiet", { role: "status" }))),
		);
	}

	async load(state) {
		const requests = ["data", "textbook"].map((name) => this.shell.request(name));
		const [{ corpora }, { train }] = (await Promise.all(requests)).map(({ result }) => result);
		const corpusOptions = corpora.map(({ name, description }) => [name, `${name}: ${description}`]);
		const offer = (list, options) =>
			fill(
				list,
				options.map(([value, label]) => element("option", { value }, label)),
			);
		offer(this.kind, train.kinds);
		offer(this.size, train.sizes);
		offer(this.data, [...corpusOptions, ["", "your own text …"]]);
		const choose = (list, wanted, otherwise) => {
			list.value = wanted;
			if (list.selectedIndex < 0) list.value = otherwise;
		};
		choose(this.kind, state.kind, "gpt");
		choose(this.data, state.data, PAIRED_KINDS.includes(this.kind.value) ? "locales" : "stories");
		choose(this.size, state.size, "tiny");
		this.fileField.hidden = this.data.value !== "";
		if (state.mode === "several") this.mode.querySelector("input[value=several]").click();
	}

	saveChoices() {
		const pairedData = PAIRED_KINDS.includes(this.kind.value) ? ["locales", ""] : null;
		if (pairedData && !this.several && !pairedData.includes(this.data.value)) this.data.value = "locales";
		this.fileField.hidden = this.data.value !== "";
		this.shell.setState({ kind: this.kind.value, data: this.data.value || null, size: this.size.value });
	}

	setMode(several) {
		this.several = several;
		[this.kindField.hidden, this.kindsField.hidden] = [several, !several];
		this.submitButton.textContent = several ? "Compare" : "Start";
		this.shell.setState({ mode: several ? "several" : null });
	}

	setBusy(busy) {
		this.submitButton.disabled = busy;
		this.note.textContent = busy ? "A job is already running; only one runs at a time." : "";
	}

	submit() {
		return this.shell.attempt(async () => {
			/** @type {Record<string, unknown>} */
			const body = {
				...(await this.dataFields()),
				preset: this.size.value,
				seed: Number(this.seed.value) || 0,
				...this.budgetFields(),
			};
			if (this.name.value.trim()) body.run = this.name.value.trim();
			if (this.several)
				return this.onSubmit("compare", {
					...body,
					kinds: this.kindBoxes.filter((box) => box.checked).map((box) => box.value),
				});
			if (this.sentence.value.trim()) body.tracked_sentence = this.sentence.value.trim();
			if (this.keep.value) body.keep_checkpoints = Number(this.keep.value);
			return this.onSubmit("train", { ...body, kind: this.kind.value });
		});
	}

	budgetFields() {
		if (this.steps.value) return { steps: Number(this.steps.value) };
		return this.minutes.value ? { minutes: Number(this.minutes.value) } : {};
	}

	/** A built-in data set by name, or the file, uploaded in chunks. */
	async dataFields() {
		if (this.data.value) return { data: this.data.value };
		const [file] = this.file.files;
		if (!file) throw new ApiError("No text was chosen.", "Choose a file, or one of the built-in data sets.");
		const text = await file.text();
		let [upload_id, end] = [undefined, 0];
		do {
			const start = end;
			end = chunkEnd(text, start + UPLOAD_CHUNK);
			const chunk = { name: file.name, text: text.slice(start, end), upload_id };
			({ upload_id } = (await this.shell.request("upload", chunk)).result);
			this.note.textContent = `Uploaded ${Math.round((100 * end) / text.length)} %.`;
		} while (end < text.length);
		return { upload_id };
	}
}

/** End of a chunk that does not split a surrogate pair. */
function chunkEnd(text, end) {
	const code = text.charCodeAt(end - 1);
	return Math.min(code >= 0xd800 && code < 0xdc00 ? end + 1 : end, text.length);
}
