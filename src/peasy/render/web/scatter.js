// Scatter plot of named points: hovering or focusing a point highlights its nearest neighbours.

import { define, make } from "./figure.js";
import { nextIndex } from "./moves.js";

class PeasyPlane extends HTMLElement {
	connectedCallback() {
		if (this.points) return;
		const script = this.querySelector(':scope > script[type="application/json"]');
		const { names, neighbours } = /** @type {any} */ (this).data ?? JSON.parse(script.textContent);
		this.points = [.../** @type {NodeListOf<SVGElement>} */ (this.querySelectorAll("path.point"))];
		this.status = make(
			"p.note",
			{ role: "status" },
			"Point at a name, or use the arrow keys, to see its nearest neighbours.",
		);
		this.append(this.status);
		this.querySelector("svg").setAttribute("role", "group"); // an image would hide its points from screen readers
		const highlight = (chosen) => {
			if (chosen < 0) return;
			const nearest = neighbours[chosen] ?? [];
			this.points.forEach((point, index) => {
				point.classList.toggle("far", index !== chosen && !nearest.includes(index));
				point.setAttribute("tabindex", index === chosen ? "0" : "-1");
			});
			this.emitSelect(chosen);
			const listed = nearest.map((index) => names[index]).join(", ") || "none";
			this.status.textContent = `${names[chosen]}: nearest neighbours ${listed}.`;
		};
		this.points.forEach((point, index) => {
			const attributes = { tabindex: index ? -1 : 0, role: "img", "aria-label": names[index] ?? "" };
			for (const [name, value] of Object.entries(attributes)) point.setAttribute(name, String(value));
		});
		const indexOf = (event) => this.points.indexOf(event.target);
		this.addEventListener("pointerover", (event) => highlight(indexOf(event)));
		this.addEventListener("focusin", (event) => highlight(indexOf(event)));
		this.addEventListener("pointerleave", () => {
			this.points.forEach((point) => point.classList.remove("far"));
			this.emitSelect(-1);
		});
		this.addEventListener("keydown", (event) => {
			const index = indexOf(event);
			const next = nextIndex(event, index, this.points.length);
			if (next === undefined || index < 0) return;
			event.preventDefault();
			this.points[next].focus();
		});
		this.toggleAttribute("data-ready", true);
	}

	emitSelect(index) {
		this.dispatchEvent(new CustomEvent("peasy-select", { detail: { index } }));
	}
}

define("peasy-plane", PeasyPlane);
