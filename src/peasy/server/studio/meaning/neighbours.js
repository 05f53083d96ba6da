// Nearest neighbours of the hovered point, with cosine similarities.

import { writeNumber } from "/web/render/numbers.js";
import { bdi, element, fill, quiet } from "../element.js";

export class NeighbourList {
	/** The `maps` have the same points, each with its neighbours as pairs [index, cosine]; `period` is a caption. */
	constructor(maps) {
		this.maps = maps;
		this.element = element("aside.card.near", { "aria-label": "Neighbours", "aria-live": "polite" });
		this.show(0);
	}

	/** Show the neighbours of the hovered or focused point of these planes. */
	follow(planes) {
		planes.forEach((plane) =>
			plane.addEventListener("peasy-select", ({ detail: { index } }) => index >= 0 && this.show(index)),
		);
	}

	show(index) {
		const { name, group } = this.maps[0].points[index];
		const list = ({ period, points }) =>
			element(
				"div",
				period && quiet(`nearest ${period} training`),
				element(
					"ol",
					points[index].neighbours.map(([other, cosine]) =>
						element("li", element("span.number", writeNumber(cosine)), bdi(points[other].name)),
					),
				),
			);
		fill(this.element, element("h2", bdi(name)), quiet(group), element("div.sides", this.maps.map(list)));
	}
}
