// Pages in the order of the navigation rail; `g` and the letter opens one. Each has its module in page/<name>.js.

export const PAGES = [
	{ name: "home", title: "Home", letter: "h" },
	{ name: "work", title: "Work", letter: "w" },
	{ name: "look", title: "Look", letter: "l" },
	{ name: "generate", title: "Generate", letter: "g" },
	{ name: "translate", title: "Translate", letter: "t" },
	{ name: "meaning", title: "Meaning", letter: "m" },
	{ name: "experiments", title: "Experiments", letter: "e" },
	{ name: "train", title: "Train", letter: "r" },
	{ name: "models", title: "Models", letter: "o" },
	{ name: "glossary", title: "Glossary", letter: "y" },
];
