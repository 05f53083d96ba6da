// Button that cycles through the system's theme, light and dark. Nothing is stored.

const THEMES = ["auto", "light", "dark"];

export function addThemeButton(page) {
	const button = Object.assign(page.createElement("button"), { id: "theme", type: "button" });
	const show = (name) => {
		button.textContent = `Theme: ${name}`;
		page.documentElement.dataset.theme = name;
		button.onclick = () => show(THEMES[(THEMES.indexOf(name) + 1) % THEMES.length]);
	};
	show("auto");
	page.querySelector("main").append(button);
}
