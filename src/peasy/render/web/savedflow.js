// Picture of a forward pass in a saved page or a notebook: all numbers are in the page, no server is asked.

import { define } from "./figure.js";
import { FlowView, headName } from "./flowview.js";

class SavedFlow extends HTMLElement {
	connectedCallback() {
		const stored = this.querySelector(':scope > script[type="application/json"]');
		if (this.view || !stored) return;
		const pass = JSON.parse(stored.textContent);
		const numbers = new Map(pass.head_numbers.map((head) => [headName(head), head.steps]));
		const ablationOf = ({ layer, head }) => pass.ablations.find((one) => one.layer === layer && one.head === head);
		// one head at a time: the page holds the answers of the model without each single head
		const show = (off) => {
			this.view.off = off.slice(-1);
			const without = off.length ? ablationOf(off.at(-1)) : null;
			return this.view.show(without ? { ...pass, next_tokens: without.next_tokens } : pass, pass, {
				q: this.view.row,
				k: this.view.key ?? undefined,
				s: this.view.step,
			});
		};
		this.view = new FlowView({
			pass: show,
			head: async (place) => {
				const steps = numbers.get(headName(place));
				if (!steps) this.view.showNote("The numbers of this head are left out to keep this page small.");
				return steps;
			},
			canAblate: ablationOf,
			onChange: () => {},
		});
		this.append(this.view.element);
		this.view.show(pass, pass);
		this.addEventListener("keydown", (event) => this.#onKey(event));
		this.toggleAttribute("data-ready", true);
	}

	#onKey(event) {
		if (event.target.closest("input") || event.ctrlKey || event.metaKey || event.altKey) return;
		const binding = this.view.keys().find(({ key }) => key === event.key);
		if (!binding) return;
		binding.run();
		event.preventDefault();
	}
}

define("peasy-flow", SavedFlow);
