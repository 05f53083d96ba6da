// Page Meaning: words before and after training, map of texts, similarity of two sentences.

import { pageHeader } from "../element.js";
import { SimilarityTab } from "../meaning/similarity.js";
import { TextMap } from "../meaning/texts.js";
import { WordMap } from "../meaning/words.js";
import { tabs } from "../tabs.js";

const TAB_CLASSES = { words: WordMap, texts: TextMap, why: SimilarityTab };
const TITLES = { words: "Words before and after", texts: "Texts on a map", why: "Compare two sentences" };

export class Page {
	isNew = true;

	constructor(place, shell) {
		this.shell = shell;
		this.tabs = tabs(
			Object.entries(TITLES).map(([name, title]) => ({ name, title, show: () => this.showTab(name) })),
			(name) => shell.setState({ tab: name === "words" ? null : name }, { push: true }),
		);
		place.append(
			...pageHeader(
				"Meaning",
				"A model turns words and texts into vectors: what is near on the map was used in similar contexts.",
			),
			this.tabs.element,
		);
		shell.onStateChange((state) => this.start(state));
	}

	start({ tab }) {
		return this.tabs.choose(tab, false);
	}

	showTab(name) {
		const { shell } = this;
		const { signal } = shell;
		return shell.attempt(async () => {
			const list = shell.bar.listModels(null, this.isNew);
			this.isNew = false; // a tab that is chosen meanwhile waits for the same list
			const [models, { result }] = await Promise.all([list, shell.request("textbook")]);
			if (signal.aborted) return null; // another page is open
			shell.clearError();
			const tab = new TAB_CLASSES[name](shell, models, result.meaning, (other) => this.tabs.choose(other));
			shell.setExports(() => tab.buildRequest());
			shell.setCopyItems(() => [{ label: "Result as JSON", text: () => JSON.stringify(tab.response?.result) }]);
			tab.start();
			return tab.element;
		});
	}
}
