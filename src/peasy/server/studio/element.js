// DOM helpers: elements, form controls, tables. All strings become text nodes, never markup.

import { make } from "/web/render/figure.js";

/**
 * Create an element with attributes (`on…` are listeners, true is a bare attribute, null and false are left out) and
 * children (strings and numbers become text nodes; null and false are left out; arrays are flattened).
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...any} children
 */
export function element(tag, attributes = {}, ...children) {
  const given = {};
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) given[name] = value === true ? "" : value;
  }
  const created = make(tag, given);
  created.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return created;
}

let idCount = 0;

/** An id that is unique in the document. */
export function uniqueId(prefix = "part") {
  idCount += 1;
  return `${prefix}-${idCount}`;
}

/** A control (input, select or textarea) with its label. */
export function field(label, control, hint = null) {
  control.id ||= uniqueId("field");
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control, hint && element("span", { class: "note" }, hint));
}

/** A select of `options` ([value, label] or strings); `onChange` gets the value. */
export function select(options, chosen, onChange, attributes = {}) {
  const control = element("select", { ...attributes, onchange: () => onChange(control.value) });
  for (const option of options) {
    const [value, label] = Array.isArray(option) ? option : [option, option];
    control.append(element("option", { value }, label));
  }
  control.value = chosen;
  return control;
}

/** A segmented control of radio buttons. */
export function radioGroup(legend, options, chosen, onChange) {
  const name = uniqueId("choice");
  return element("fieldset", { class: "choices" }, element("legend", {}, legend), options.map((option) => {
    const [value, label] = Array.isArray(option) ? option : [option, option];
    const input = element("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChange(value) });
    return element("label", {}, input, element("span", {}, label));
  }));
}

/** A slider with its value beside it; `onInput` gets the number at every move. */
export function slider(label, { min, max, step, value, write = String }, onInput) {
  const id = uniqueId("slider");
  const output = element("output", { for: id }, write(value));
  const input = element("input", { id, type: "range", min, max, step, value, "aria-valuetext": write(value) });
  input.addEventListener("input", () => {
    output.textContent = write(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
    onInput(Number(input.value));
  });
  return element("div", { class: "slider" }, element("label", { for: id }, label), input, output);
}

/** A button; its class is "plain", or "plain main" for the main action. */
export function button(label, onClick, attributes = {}) {
  return element("button", { type: "button", class: "plain", ...attributes, onclick: onClick }, label);
}

/** A table with numeric columns aligned right; cells are strings, numbers or elements. */
export function table(caption, columns, rows) {
  const numeric = columns.map((_, index) => rows.length > 0 && rows.every((row) => typeof row[index] === "number" || /^[-−]?[\d.,]+( ?%)?$/.test(row[index])));
  const cell = (value, index) => element("td", { class: numeric[index] ? null : "word" }, value instanceof Node ? value : element("bdi", {}, String(value)));
  return element("figure", { class: "table" }, element("table", {},
    caption && element("caption", {}, element("b", {}, caption)),
    element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map(cell))))));
}

/** A table in a closed <details>: the numbers of the figure above it. */
export function tableDetails(content, label = "The numbers as a table") {
  return element("details", {}, element("summary", {}, label), content);
}
