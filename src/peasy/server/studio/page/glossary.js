// Page Glossary: terms of the field in a sentence each, with a filter.

import { element, field, fill, pageHeader } from "../element.js";

export class Page {
	groups = [];

	constructor(place, shell) {
		this.shell = shell;
		this.filter = element("input", { type: "search", oninput: () => this.show(this.filter.value) });
		this.list = element("div");
		place.append(
			...pageHeader("Glossary", "The terms that peasy's pages, commands and code use."),
			field("filter", this.filter),
			this.list,
		);
	}

	async start({ term = "" }) {
		this.groups = (await this.shell.request("glossary")).result.groups;
		this.filter.value = term;
		this.show(term);
	}

	show(text) {
		const matches = ({ term, means }) => `${term} ${means}`.toLowerCase().includes(text.trim().toLowerCase());
		const shown = this.groups
			.map(({ title, terms }) => ({ title, terms: terms.filter(matches) }))
			.filter(({ terms }) => terms.length);
		fill(
			this.list,
			shown.map(({ title, terms }) =>
				element(
					"section.card",
					element("h2", title),
					element(
						"dl",
						terms.flatMap(({ term, means }) => [element("dt", element("b", term)), element("dd", withCode(means))]),
					),
				),
			),
		);
	}
}

/** Text whose `parts` between backticks are code. */
function withCode(text) {
	return text.split("`").map((part, index) => (index % 2 ? element("code", part) : part));
}
