// Button that cycles through the system's theme, light and dark. Nothing is stored.

const THEMES = ["auto", "light", "dark"];

export function addThemeButton(page) {
	const button = Object.assign(page.createElement("button"), { id: "theme", type: "button" });
	let chosen = 0;
	const show = () => {
		const name = THEMES[chosen];
		button.textContent = `Theme: ${name}`;
		if (name === "auto") page.documentElement.removeAttribute("data-theme");
		else page.documentElement.dataset.theme = name;
	};
	button.addEventListener("click", () => {
		chosen = (chosen + 1) % THEMES.length;
		show();
	});
	show();
	page.querySelector("main").append(button);
}
