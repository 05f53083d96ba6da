// Picture of a forward pass in a saved page or a notebook: all numbers are in the page, no server is asked.

import { define } from "./figure.js";
import { FlowView, headName, writeHeads } from "./flowview.js";

class SavedFlow extends HTMLElement {
	connectedCallback() {
		const stored = this.querySelector(':scope > script[type="application/json"]');
		if (this.view || !stored) return;
		const pass = JSON.parse(stored.textContent);
		const numbers = new Map(pass.head_numbers.map((head) => [headName(head), head]));
		const ablationOf = (place) => pass.ablations.find((one) => writeHeads([one]) === writeHeads([place]));
		// one head at a time: the page holds the picture of the model without each single head
		const show = (heads, chosen = { q: this.view.row, k: this.view.key ?? undefined, s: this.view.step }) => {
			const off = (this.view.off = heads.slice(-1).filter(ablationOf));
			return this.view.show(off.length ? withoutHead(pass, ablationOf(off[0])) : pass, pass, chosen);
		};
		this.view = new FlowView({
			pass: show,
			head: async (place) => {
				const found = numbers.get(headName(place));
				const { off } = this.view;
				if (off.some((one) => isBefore(one, place)))
					this.view.showNote("With an earlier head off, this head has other numbers, which this page does not hold.");
				else if (!found) this.view.showNote("The numbers of this head are left out to keep this page small.");
				// of the model with all heads on are the gradients, too
				else return off.length ? { ...found, steps: { ...found.steps, gradient: null } } : found;
				return null;
			},
			canAblate: ablationOf,
			onChange: () => {},
		});
		this.append(this.view.element);
		const { open = null, off = [], ...chosen } = JSON.parse(decodeURIComponent(this.dataset.view ?? "%7B%7D"));
		this.view.open = open;
		show(off, chosen);
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

/** Whether the output of one head is an input of the other. */
const isBefore = (one, other) =>
	one.layer < other.layer || (one.layer === other.layer && (one.part ?? "attention") < other.part);

function withoutHead(pass, { next_tokens, layers }) {
	const stack = pass.stacks.at(-1);
	const changed = { ...stack, layers: [...stack.layers.slice(0, -layers.length), ...layers] };
	return { ...pass, stacks: pass.stacks.with(-1, changed), next_tokens };
}

define("peasy-flow", SavedFlow);
