// A button that opens a short list of things to do: export, copy.

import { element, freshId } from "./element.js";

/**
 * @param {string} said what the button says
 * @param {() => Array<{label: string, run: () => any}>} offers what there is, asked when it opens
 */
export function menuButton(said, offers, title) {
  const id = freshId("menu");
  const list = element("div", { id, class: "menu", role: "menu", "aria-label": title ?? said, hidden: true });
  const opener = element("button", { type: "button", class: "plain", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": id, title }, said);
  const home = element("div", { class: "menu-home" }, opener, list);
  const close = (back = true) => {
    list.hidden = true;
    opener.setAttribute("aria-expanded", "false");
    if (back) opener.focus();
  };
  const open = () => {
    const items = offers().map(({ label, run }) => element("button", { type: "button", role: "menuitem", tabindex: -1, onclick: () => { close(); run(); } }, label));
    list.replaceChildren(...(items.length ? items : [element("button", { type: "button", role: "menuitem", tabindex: -1, "aria-disabled": "true", onclick: () => close() }, "Nothing here yet")]));
    list.hidden = false;
    opener.setAttribute("aria-expanded", "true");
    list.firstElementChild.focus();
  };
  opener.addEventListener("click", () => (list.hidden ? open() : close()));
  list.addEventListener("keydown", (event) => move(event, list, close));
  home.addEventListener("focusout", (event) => {
    if (!list.hidden && !home.contains(event.relatedTarget)) close(false);
  });
  return { home, opener, open };
}

function move(event, list, close) {
  const items = [...list.children];
  const at = items.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
  if (event.key === "Escape") close();
  else if (event.key === "Tab") close(false);
  else if (next !== undefined) items[(next + items.length) % items.length].focus();
  else return;
  if (event.key !== "Tab") event.preventDefault();
  event.stopPropagation();
}
