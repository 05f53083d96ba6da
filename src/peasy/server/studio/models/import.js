// Import of a model from the local Hugging Face cache, after confirmation.

import { formatCount, writeNumber } from "/web/render/numbers.js";
import {
	button,
	details,
	element,
	field,
	fieldRow,
	flexRow,
	openDialog,
	mainButton,
	quiet,
	select,
} from "../element.js";

export function importForm(shell, cards, onImported) {
	const cached = cards.filter(({ source, error }) => source === "hub cache" && !error);
	const terminalHint = quiet(
		"Your own model: ",
		element("a", { href: "train" }, "train one"),
		", or import one in the terminal, which asks before it downloads: peasy import FOLDER, or a Hugging Face id.",
	);
	if (!cached.length) return terminalHint;
	let chosen = 0;
	const titles = cached.map(({ name }, index) => [index, name]);
	return details(
		"Import a model from the Hugging Face cache",
		fieldRow(
			field(
				"model",
				select(titles, chosen, (index) => (chosen = index)),
			),
			button("Import …", () => confirmImport(shell, cached[chosen], onImported)),
		),
		terminalHint,
	);
}

function confirmImport(shell, card, onImported) {
	const nameInput = element("input", {
		type: "text",
		maxlength: 60,
		value: card.name
			.split("/")
			.at(-1)
			.replace(/[^\w.-]+/g, "-"),
	});
	const errorContainer = element("div");
	const copyButton = mainButton("Copy", async () => {
		copyButton.disabled = true;
		try {
			const { result } = await shell.request("import", { model: card.name, name: nameInput.value.trim(), yes: true });
			dialog.close();
			onImported(result.name);
		} catch (error) {
			shell.showError(error, errorContainer);
			copyButton.disabled = false;
		}
	});
	const dialog = openDialog(
		"Import this model?",
		element(
			"p",
			`${card.name} (${formatCount(card.parameters)} parameters, ${writeNumber(card.bytes / 1e6, 1)} MB) will be ` +
				"copied into peasy's data directory. Nothing is downloaded.",
		),
		field("name", nameInput),
		errorContainer,
		flexRow(
			copyButton,
			button("Cancel", () => dialog.close()),
		),
	);
}
