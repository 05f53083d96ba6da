// Textbook panel: ten short chapters; each moves the picture, asks a question and names an experiment.

import { button, element, mainButton, quiet, select } from "../element.js";

/**
 * A chapter opens the head of the story, with a `step` at this step of its arithmetic; or another `layer`, or
 * the token's `ownKey`; with `cached`, earlier rows come from the KV cache; with `gradients` there is a training step.
 * [Terms] are in the glossary.
 * `answer` is the index of the right option; `experiment` measures the chapter's claim.
 */
export const CHAPTERS = [
	{
		title: "A summary of the context",
		text:
			"To guess the next word, a model needs the words before it. Attention gives every [token] a summary of its " +
			"context: a weighted sum, in which some tokens count more than others. The ribbons show the weights.",
		question: "What do wide ribbons mean?",
		options: ["a large weight", "a long word"],
		answer: 0,
		experiment: "first-word",
	},
	{
		title: "Query, key, value",
		text:
			"Each token is turned into three vectors by three learned matrices. The [query] says what a token looks for, the " +
			"[key] what it offers, the [value] what it hands on.",
		step: 0,
		question: "Which two vectors are compared?",
		options: ["key and value", "query and key"],
		answer: 1,
		experiment: "projections",
	},
	{
		title: "Scores",
		text:
			"The [score] of a pair is the dot product of query and key: multiply number by number and add. A large score " +
			"means: this key is what the query looks for.",
		step: 0,
		ownKey: true,
		question: "A score of two vectors at a right angle is",
		options: ["0", "1"],
		answer: 0,
		experiment: "matrix-form",
	},
	{
		title: "Scale",
		text:
			"Long vectors give large scores: with d numbers, their spread grows like √d. Divided by √d, the scores keep one " +
			"size, and the [softmax] does not become all or nothing, which would stop learning.",
		step: 1,
		question: "Without the scale, a wide head is",
		options: ["too sharp", "too even"],
		answer: 0,
		experiment: "why-root-dk",
	},
	{
		title: "Softmax",
		text:
			"e to the power of each score, divided by the sum of the row: positive shares that add up to 1. A [mask] makes a " +
			"score minus infinity, so a token cannot look at what comes later.",
		step: 3,
		question: "The weights of one row add up to",
		options: ["the number of tokens", "1"],
		answer: 1,
		experiment: "softmax-or-sum",
	},
	{
		title: "The sum",
		text:
			"Every value vector is multiplied by its weight, and all are added. This is what the [head] hands on: mostly the " +
			"values of the tokens with wide ribbons.",
		step: 4,
		question: "A token with weight 0 adds",
		options: ["nothing", "its whole value"],
		answer: 0,
		experiment: "equal-weights",
	},
	{
		title: "Several heads",
		text:
			"A layer has several [head]s with matrices of their own. Each may look for something else: the word before, the " +
			"noun that “it” stands for. Click the small maps above the layers.",
		layer: 0,
		question: "Do two heads of a layer share their weights?",
		options: ["no", "yes"],
		answer: 0,
		experiment: "heads",
	},
	{
		title: "The block",
		text:
			"The heads' results are added to the token's own line, the [residual] stream. Then a [feed-forward network] works " +
			"on each token alone, and its result is added, too. Layer follows layer.",
		layer: -1,
		question: "Which part mixes tokens?",
		options: ["feed-forward", "attention"],
		answer: 1,
		experiment: "long-or-parallel",
	},
	{
		title: "Training",
		text:
			"All numbers in the matrices were learned: the model guesses each next word of many texts, and every weight is " +
			"moved a little against its [gradient], in the direction that makes the right word likelier.",
		step: 5,
		gradients: true,
		question: "What does a language model learn to guess?",
		options: ["the next token", "the language"],
		answer: 0,
		experiment: "pronoun",
	},
	{
		title: "The cache",
		text:
			"When one more token is written, the keys and values of all earlier tokens stay as they are. They are kept in " +
			"the [KV cache] (grey), and only the last row is computed.",
		cached: true,
		question: "What is computed again for old tokens?",
		options: ["nothing", "keys and values"],
		answer: 0,
		experiment: "cache",
	},
];

/** Panel of one chapter; `open(number)` shows another one. */
export function chapterPanel(number, open) {
	const { title, text, question, options, answer, experiment } = CHAPTERS[number];
	const verdict = element("p", { role: "status", class: "quiet" });
	const choose = (index) => (verdict.textContent = index === answer ? "✓ Right." : `Not quite: ${options[answer]}.`);
	const chapters = CHAPTERS.map((chapter, index) => [index, `${index + 1} of ${CHAPTERS.length}: ${chapter.title}`]);
	return element(
		"aside.textbook",
		{ "aria-label": "Textbook" },
		select(chapters, number, (value) => open(Number(value)), { "aria-label": "Chapter" }),
		element("h2", title),
		element("p", linked(text)),
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
			mainButton("Next ▶", () => open(number + 1), { disabled: number === CHAPTERS.length - 1 }),
		),
	);
}

/** Text whose [terms] are links to the glossary. */
function linked(text) {
	return text
		.split(/[[\]]/)
		.map((part, index) => (index % 2 ? element("a", { href: `glossary?term=${part}` }, part) : part));
}
