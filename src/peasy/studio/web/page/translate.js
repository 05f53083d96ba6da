// Translate: the network of 2015 and the Transformer side by side; which word came from which, and the beams as a tree.

import { Side } from "../translate/side.js";
import { element, slider } from "../element.js";
import { save } from "../save.js";

export const page = { name: "translate", title: "Translate", letter: "t", text: "A text to translate" };

const FIRST = "Sunday, November 15, 2026";
const TRIES = ["3 days ago", "$5.20", "Monday, May 4, 1981", "98 miles per hour"];
const KINDS = ["recurrent-translator", "encoder-decoder"];

export async function open(place, state, shell) {
  const models = await shell.bar.known((model) => KINDS.includes(model.is), true);
  if (!models.length) throw Object.assign(new Error("There is no translator here yet."), { hint: "Train one: page Train, kind translator, data locales." });
  const chosen = (kind, other) => (models.find((model) => model.is === kind) ?? models.find((model) => model !== other) ?? models[0]).name;
  const defaults = { a: chosen(KINDS[0]), b: chosen(KINDS[1]) };
  let [text, beam] = [FIRST, 4];
  const sides = ["a", "b"].map((letter) => new Side(letter, models, shell, () => sides.find((side) => side.letter === letter).ask(text, beam)));
  const search = slider("beams", { min: 1, max: 8, step: 1, value: 4 }, (value) => {
    shell.set({ beam: value === 4 ? null : value });
    beam = value;
    sides.forEach((side) => side.grow(text, beam));
  });
  const tries = TRIES.map((each) => element("a", { class: "chip", href: `/translate?t=${encodeURIComponent(each)}` }, each));
  place.append(
    element("h1", {}, "Translate"),
    element("p", { class: "lead" }, "Two networks answer the same text. Ribbons join each word of the answer with the words it was written from: where they cross the order changes, where they meet or spread the number of words does."),
    element("div", { class: "row" }, search, element("span", { class: "quiet" }, "Try "), tries),
    element("div", { class: "sides" }, sides.map((side) => side.element)),
  );
  shell.exports(() => ({ verb: "align", body: sides[1].asked(text) }), () => [{ label: `CSV of ${sides[0].model}`, run: () => save("align", sides[0].asked(text), "csv").catch((error) => shell.fail(error)) }]);
  shell.copies(() => sides.map((side) => ({ label: `answer of ${side.model}`, text: () => side.answer ?? "" })));
  const turn = (down, across) => () => sides.forEach((side) => side.turn(down, across));
  shell.keys.here([
    { key: "[", says: "Layer before", run: turn(-1, 0) }, { key: "]", says: "Next layer", run: turn(1, 0) },
    { key: ",", says: "Head before", run: turn(0, -1) }, { key: ".", says: "Next head", run: turn(0, 1) },
    { key: "b", says: "The heads that align best", run: () => sides.forEach((side) => side.best()) },
  ]);
  const show = (now) => {
    text = now.t?.trim() || FIRST;
    beam = Math.min(Math.max(Number(now.beam) || 4, 1), 8);
    search.querySelector("input").value = beam;
    search.querySelector("output").textContent = beam;
    return Promise.all(sides.map((side) => side.show(now, defaults[side.letter], text, beam)));
  };
  shell.onState(show);
  shell.bar.show({ t: FIRST, ...state });
  await show(state);
  return () => {};
}
