// The neighbours of the point that is pointed at, nearest first, with their cosines.

import { element } from "../element.js";

export class Near {
  /** @param {Array<{says?: string, points: Array<{name: string, near: Array<[number, number]>}>}>} maps of the same points */
  constructor(maps) {
    this.maps = maps;
    this.element = element("aside", { class: "card near", "aria-label": "Neighbours", "aria-live": "polite" });
    this.show(0);
  }

  /** Hear what is pointed at or focused on these planes. */
  follow(planes) {
    planes.filter(Boolean).forEach((plane) => ["pointerover", "focusin"].forEach((kind) => plane.addEventListener(kind, (event) => {
      const at = plane.points?.indexOf(event.target) ?? -1;
      if (at >= 0) this.show(at);
    })));
  }

  show(at) {
    const [first] = this.maps;
    const list = ({ says, points }) => element("div", {}, says && element("p", { class: "quiet" }, `nearest ${says} training`),
      element("ol", {}, points[at].near.map(([other, cosine]) => element("li", {}, element("span", { class: "number" }, cosine.toFixed(4)), element("bdi", {}, points[other].name)))));
    this.element.replaceChildren(element("h3", {}, element("bdi", {}, first.points[at].name)), element("p", { class: "quiet" }, first.points[at].group), element("div", { class: "sides" }, this.maps.map(list)));
  }
}
