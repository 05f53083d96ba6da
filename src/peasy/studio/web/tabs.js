// Tabs: one panel at a time, arrows move between their names.

import { element, freshId } from "./element.js";

/**
 * @param {Array<{name: string, title: string, show: () => Node | Promise<Node>}>} listed what each shows, made when it is chosen
 * @param {(name: string) => void} chosen told when a person chooses
 */
export function tabs(listed, chosen) {
  const panel = element("div", { role: "tabpanel", id: freshId("panel"), tabindex: -1 });
  const names = listed.map(({ name, title }) => element("button", { type: "button", role: "tab", id: freshId("tab"), "aria-controls": panel.id, "data-tab": name, onclick: () => choose(name) }, title));
  const list = element("div", { class: "tabs", role: "tablist" }, names);
  const choose = async (name, tell = true) => {
    const at = Math.max(listed.findIndex((each) => each.name === name), 0);
    names.forEach((button, place) => {
      button.setAttribute("aria-selected", String(place === at));
      button.tabIndex = place === at ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", names[at].id);
    if (tell) chosen(listed[at].name);
    panel.replaceChildren(await listed[at].show());
  };
  list.addEventListener("keydown", (event) => {
    const at = names.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = names[(to + names.length) % names.length];
    next.focus();
    choose(next.dataset.tab);
  });
  return { element: element("div", {}, list, panel), choose, panel };
}
