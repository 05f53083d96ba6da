// Theme: light, dark, high contrast, or that of the system; stored in this browser only.

export const THEMES = ["auto", "light", "dark", "contrast"];

export function currentTheme() {
	return document.documentElement.dataset.theme ?? "auto";
}

export function setTheme(name) {
	if (name === "auto") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = name;
	try {
		localStorage.setItem("peasy-theme", name);
	} catch {
		// Storage is not available: the theme lasts until the page is closed.
	}
}

export function nextTheme() {
	const next = THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length];
	setTheme(next);
	return next;
}
