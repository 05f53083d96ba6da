// A map of named points: pointing at one, or focusing it, shows its nearest neighbours.

import { define, make } from "./base.js";

class PeasyPlane extends HTMLElement {
  connectedCallback() {
    if (this.points) return;
    const { names, neighbours } = this.data ?? JSON.parse(this.querySelector(':scope > script[type="application/json"]').textContent);
    this.points = [...this.querySelectorAll("path.point")];
    this.read = make("p", { class: "note", role: "status" }, "Point at a name, or move with the arrow keys, to see its neighbours.");
    this.append(this.read);
    this.querySelector("svg").setAttribute("role", "group"); // an image would hide its points from screen readers
    const show = (place) => {
      if (place < 0) return;
      const near = neighbours[place] ?? [];
      this.points.forEach((point, at) => {
        point.classList.toggle("far", at !== place && !near.includes(at));
        point.setAttribute("tabindex", at === place ? 0 : -1);
      });
      this.read.textContent = `${names[place]}: nearest are ${near.map((at) => names[at]).join(", ") || "none"}.`;
    };
    this.points.forEach((point, place) => {
      point.setAttribute("tabindex", place ? -1 : 0);
      point.setAttribute("role", "img");
      point.setAttribute("aria-label", names[place] ?? "");
    });
    const placeOf = (event) => this.points.indexOf(event.target);
    this.addEventListener("pointerover", (event) => show(placeOf(event)));
    this.addEventListener("focusin", (event) => show(placeOf(event)));
    this.addEventListener("pointerleave", () => this.points.forEach((point) => point.classList.remove("far")));
    this.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const at = placeOf(event);
      if (!step || at < 0) return;
      event.preventDefault();
      this.points[(at + step + this.points.length) % this.points.length].focus();
    });
    this.toggleAttribute("data-ready", true);
  }
}

define("peasy-plane", PeasyPlane);
