// Textbook panel: ten short chapters; each moves the picture, asks a question and names an experiment.

import { linked } from "/web/render/flowview.js";
import { button, element, mainButton, quiet, select } from "../element.js";

/** Panel of one of the chapters; `open(number)` shows another one. */
export function chapterPanel(all, number, open) {
	const { title, text, question, options, answer, experiment } = all[number];
	const verdict = element("p", { role: "status", class: "quiet" });
	const choose = (index) => (verdict.textContent = index === answer ? "✓ Right." : `Not quite: ${options[answer]}.`);
	const chapters = all.map((chapter, index) => [index, `${index + 1} of ${all.length}: ${chapter.title}`]);
	return element(
		"aside.textbook",
		{ "aria-label": "Textbook" },
		button("×", () => open(-1), { "aria-label": "Close the textbook", title: "Close (Esc)" }),
		select(chapters, number, (value) => open(Number(value)), { "aria-label": "Chapter" }),
		element("h2", title),
		element("p", linked(text, glossaryLink)),
		element("p", element("b", question)),
		element(
			"div.row",
			options.map((option, index) => button(option, () => choose(index))),
		),
		verdict,
		quiet(element("a", { href: `experiments?x=${experiment}` }, "Is that so? Measure it.")),
		element(
			"div.row",
			button("◀ Back", () => open(number - 1), { disabled: number === 0 }),
			mainButton("Next ▶", () => open(number + 1), { disabled: number === all.length - 1 }),
		),
	);
}

export const glossaryLink = (term) => element("a", { href: `glossary?term=${term}` }, term);
