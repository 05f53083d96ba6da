// Building the page from data: what is text stays text, whoever wrote it.

import { make } from "/web/render/base.js";

/**
 * An element with attributes (`on…` are listeners, true is a bare attribute, null and false are none) and children
 * (strings and numbers become text nodes; null and false are left out; lists are opened).
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 */
export function element(tag, attributes = {}, ...children) {
  const kept = {};
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) kept[name] = value === true ? "" : value;
  }
  const made = make(tag, kept);
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

let counted = 0;

/** An id that nothing else on the page has. */
export function freshId(stem = "part") {
  counted += 1;
  return `${stem}-${counted}`;
}

/** A field with its label: `control` may be any input, select or textarea. */
export function field(label, control, hint = null) {
  control.id ||= freshId("field");
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control, hint && element("span", { class: "note" }, hint));
}

/** A choice among `options` ([value, said] or plain strings); `choose` gets the value. */
export function select(options, chosen, choose, attributes = {}) {
  const made = element("select", { ...attributes, onchange: () => choose(made.value) });
  for (const option of options) {
    const [value, said] = Array.isArray(option) ? option : [option, option];
    made.append(element("option", { value }, said));
  }
  made.value = chosen;
  return made;
}

/** A few choices beside each other, as radio buttons that look like one control. */
export function choices(legend, options, chosen, choose) {
  const name = freshId("choice");
  return element("fieldset", { class: "choices" }, element("legend", {}, legend), options.map((option) => {
    const [value, said] = Array.isArray(option) ? option : [option, option];
    const input = element("input", { type: "radio", name, value, checked: value === chosen, onchange: () => choose(value) });
    return element("label", {}, input, element("span", {}, said));
  }));
}

/** A slider with its number beside it; `slid` gets the number at every move. */
export function slider(label, { min, max, step, value, write = String }, slid) {
  const id = freshId("slider");
  const shown = element("output", { for: id }, write(value));
  const input = element("input", { id, type: "range", min, max, step, value, "aria-valuetext": write(value) });
  input.addEventListener("input", () => {
    shown.textContent = write(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
    slid(Number(input.value));
  });
  return element("div", { class: "slider" }, element("label", { for: id }, label), input, shown);
}

/** A button; `kind` is "plain" or "main". */
export function button(said, run, attributes = {}) {
  return element("button", { type: "button", class: "plain", ...attributes, onclick: run }, said);
}

/** A table of plain cells, numbers at the right; `rows` of strings, numbers or elements. */
export function table(caption, columns, rows) {
  const numeric = columns.map((_, at) => rows.length > 0 && rows.every((row) => typeof row[at] === "number" || /^[-−]?[\d.,]+( ?%)?$/.test(row[at])));
  const cell = (value, at) => element("td", { class: numeric[at] ? null : "word" }, value instanceof Node ? value : element("bdi", {}, String(value)));
  return element("figure", { class: "table" }, element("table", {},
    caption && element("caption", {}, element("b", {}, caption)),
    element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell))))));
}

/** A table behind a click, for a picture above it: every figure has its numbers. */
export function asTable(made, said = "The numbers as a table") {
  return element("details", {}, element("summary", {}, said), made);
}
