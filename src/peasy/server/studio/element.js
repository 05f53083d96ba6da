// Elements that pages are made of: form controls, tables, dialogs.

import { bar, bdi, button, caveatLine, fill, mainButton, make as element, quiet } from "/web/render/figure.js";

export { bar, bdi, button, caveatLine, element, fill, mainButton, quiet };

let idCount = 0;

/** An id that is unique in the document. */
export function uniqueId(prefix = "part") {
	idCount += 1;
	return `${prefix}-${idCount}`;
}

/** A titled section of a page in a frame. */
export function card(label, ...children) {
	return element("section.card", { "aria-label": label }, children);
}

/** Title and introduction of a page. */
export function pageHeader(title, introduction) {
	return [element("h1", title), element("p.lead", introduction)];
}

/** Links to a page with other texts, each with a model or the page's own. */
export function examples(page, texts) {
	const link = ([t, m]) => element("a.chip", { href: `${page}?${new URLSearchParams(m ? { t, m } : { t })}` }, t);
	return flexRow(element("span.quiet", "Try"), texts.map(link));
}

/** Elements in a row. */
export function flexRow(...children) {
	return element("div.row", children);
}

/** Fields and buttons in a row, aligned at the bottom: fields have their labels above. */
export function fieldRow(...children) {
	return element("div.row.end", children);
}

/** A control (input, select or textarea) with its label. */
export function field(label, control, hint = null) {
	control.id ||= uniqueId("field");
	return element(
		"div.field",
		element("label", { for: control.id }, label),
		control,
		hint && element("span.note", hint),
	);
}

/** A field as wide as its container. */
export function wideField(label, control) {
	const wide = field(label, control);
	wide.classList.add("wide");
	return wide;
}

/** A select of `options` ([value, label] or strings); `onChange` gets the value. */
export function select(options, chosen, onChange, attributes = {}) {
	const control = element(
		"select",
		{ ...attributes, onchange: () => onChange(control.value) },
		options.map((option) => element("option", { value: [option].flat()[0] }, [option].flat().at(-1))),
	);
	control.value = chosen;
	return control;
}

/** An input for a number between two limits; `attributes` say more about it. */
export function numberInput(min, max, attributes = {}) {
	return element("input", { type: "number", min, max, ...attributes });
}

/** Lines of a text that are not empty. */
export function linesOf(text) {
	const lines = text.split("\n").map((line) => line.trim());
	return lines.filter(Boolean);
}

/** A text area; `onInput` gets its text at every change. */
export function textArea(rows, maxlength, text, onInput) {
	const oninput = ({ target }) => onInput(target.value);
	return element("textarea", { rows, maxlength, spellcheck: "false", oninput }, text);
}

/** A segmented control of radio buttons; `options` as in a select. */
export function radioGroup(legend, options, chosen, onChange) {
	const name = uniqueId("choice");
	return element(
		"fieldset.choices",
		element("legend", legend),
		options.map((option) => {
			const [value, label = value] = [option].flat();
			const input = element("input", {
				type: "radio",
				name,
				value,
				checked: value === chosen,
				onchange: () => onChange(value),
			});
			return element("label", input, element("span", label));
		}),
	);
}

/**
 * A slider with its value beside it; `onInput` gets the number at every move.
 * @param {string} label
 * @param {{ min: number, max: number, step?: number, value: number, write?: (value: number) => string }} range
 * @param {(value: number) => void} onInput
 */
export function slider(label, { min, max, step = 1, value, write = String }, onInput) {
	const id = uniqueId("slider");
	const output = element("output", { for: id }, write(value));
	const oninput = () => {
		const moved = Number(input.value);
		setSlider(container, moved, write(moved));
		onInput(moved);
	};
	const input = element("input", { id, type: "range", min, max, step, value, "aria-valuetext": write(value), oninput });
	const container = element("div.slider", element("label", { for: id }, label), input, output);
	return container;
}

/** Move a slider without calling its listener. */
export function setSlider(container, value, text) {
	const [input, output] = [container.querySelector("input"), container.querySelector("output")];
	input.value = value;
	output.textContent = text;
	input.setAttribute("aria-valuetext", text);
}

const NUMERIC = /^([-−]?[\d.,]+( ?(%|[kMG]?B))?|–)?$/;

/** A table with numeric columns aligned right; cells are strings, numbers or elements; the current row is marked. */
export function table(caption, columns, rows, currentRow = -1) {
	const textOf = (cell) => (cell instanceof Node ? cell.textContent : String(cell));
	const numeric = columns.map(
		(_, index) => rows.length > 0 && rows.every((cells) => NUMERIC.test(textOf(cells[index]))),
	);
	const makeCell = (cell, index) =>
		element("td", { class: numeric[index] ? null : "word" }, cell instanceof Node ? cell : bdi(textOf(cell)));
	return element(
		"figure.table",
		{ tabindex: 0 },
		element(
			"table",
			caption && element("caption", element("b", caption)),
			element(
				"thead",
				element(
					"tr",
					columns.map((name) => element("th", { scope: "col" }, name)),
				),
			),
			element(
				"tbody",
				rows.map((cells, index) =>
					element("tr", { "aria-current": index === currentRow || null }, cells.map(makeCell)),
				),
			),
		),
	);
}

/** Content that is closed at first. */
export function details(label, ...content) {
	return element("details.more", element("summary", label), content);
}

/** The numbers of the figure above, as a closed table. */
export function tableDetails(...content) {
	return details("The numbers as a table", content);
}

/** Open a modal dialog with a title and a button that closes it; returns it. */
export function openDialog(title, ...content) {
	const close = button("Close", () => dialog.close());
	const head = element("div.row.between", element("h2", title), close);
	const dialog = element("dialog", { "aria-label": title, onclose: () => dialog.remove() }, head, content);
	document.body.append(dialog);
	dialog.showModal();
	return dialog;
}
