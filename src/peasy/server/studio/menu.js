// Menu button: opens a short list of actions (export, copy).

import { element, uniqueId } from "./element.js";

/**
 * @param {string} label of the button
 * @param {() => Array<{label: string, run: () => any}>} getItems called when the menu opens
 */
export function menuButton(label, getItems, title) {
  const id = uniqueId("menu");
  const list = element("div", { id, class: "menu", role: "menu", "aria-label": title ?? label, hidden: true });
  const opener = element("button", { type: "button", class: "plain", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": id, title }, label);
  const container = element("div", { class: "menu-home" }, opener, list);
  const close = (restoreFocus = true) => {
    list.hidden = true;
    opener.setAttribute("aria-expanded", "false");
    if (restoreFocus) opener.focus();
  };
  const menuItem = (text, attributes) => element("button", { type: "button", role: "menuitem", tabindex: -1, ...attributes }, text);
  const open = () => {
    const items = getItems().map((item) => menuItem(item.label, { onclick: () => { close(); item.run(); } }));
    list.replaceChildren(...(items.length ? items : [menuItem("Nothing here yet", { "aria-disabled": "true", onclick: () => close() })]));
    list.hidden = false;
    opener.setAttribute("aria-expanded", "true");
    list.firstElementChild.focus();
  };
  opener.addEventListener("click", () => (list.hidden ? open() : close()));
  list.addEventListener("keydown", (event) => onMenuKeyDown(event, list, close));
  container.addEventListener("focusout", (event) => {
    if (!list.hidden && !container.contains(event.relatedTarget)) close(false);
  });
  return { element: container, open };
}

function onMenuKeyDown(event, list, close) {
  const items = [...list.children];
  const current = items.indexOf(document.activeElement);
  const next = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: items.length - 1 }[event.key];
  if (event.key === "Escape") close();
  else if (event.key === "Tab") close(false);
  else if (next !== undefined) items[(next + items.length) % items.length].focus();
  else return;
  if (event.key !== "Tab") event.preventDefault();
  event.stopPropagation();
}
