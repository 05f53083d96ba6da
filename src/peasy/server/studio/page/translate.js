// Page Translate: two translation models side by side, with word alignment and beam search tree.

import { TranslatorPanel } from "../translate/panel.js";
import { element, slider } from "../element.js";
import { saveResult } from "../save.js";

export const page = { name: "translate", title: "Translate", letter: "t", text: "A text to translate" };

const DEFAULT_TEXT = "Sunday, November 15, 2026";
const EXAMPLES = ["3 days ago", "$5.20", "Monday, May 4, 1981", "98 miles per hour"];
const KINDS = ["recurrent-translator", "encoder-decoder"];

export async function open(place, state, shell) {
  const models = await shell.bar.listModels((model) => KINDS.includes(model.is), true);
  if (!models.length) throw Object.assign(new Error("There is no translation model yet."), { hint: "Train one on the page Train: kind translator, data locales." });
  const defaultModel = (kind, other) => (models.find((model) => model.is === kind) ?? models.find((model) => model !== other) ?? models[0]).name;
  const defaults = { a: defaultModel(KINDS[0]), b: defaultModel(KINDS[1]) };
  let [text, numBeams] = [DEFAULT_TEXT, 4];
  const panels = ["a", "b"].map((letter) => new TranslatorPanel(letter, models, shell, () => panels.find((panel) => panel.letter === letter).translate(text, numBeams)));
  const beamSlider = slider("beams", { min: 1, max: 8, step: 1, value: 4 }, (value) => {
    shell.setState({ beam: value === 4 ? null : value });
    numBeams = value;
    panels.forEach((panel) => panel.translateSoon(text, numBeams));
  });
  const exampleLinks = EXAMPLES.map((example) => element("a", { class: "chip", href: `/translate?t=${encodeURIComponent(example)}` }, example));
  place.append(
    element("h1", {}, "Translate"),
    element("p", { class: "lead" }, "Two models translate the same text. Ribbons join each word of the translation with the source words it attends to: where they cross, the word order changes; where they meet or spread, the number of words changes."),
    element("div", { class: "row" }, beamSlider, element("span", { class: "quiet" }, "Try "), exampleLinks),
    element("div", { class: "sides" }, panels.map((panel) => panel.element)),
  );
  shell.setExports(() => ({ command: "align", body: panels[1].alignBody(text) }), () => [{ label: `CSV of ${panels[0].model}`, run: () => saveResult("align", panels[0].alignBody(text), "csv").catch((error) => shell.showError(error)) }]);
  shell.setCopyItems(() => panels.map((panel) => ({ label: `translation of ${panel.model}`, text: () => panel.answer ?? "" })));
  const moveHead = (layerStep, headStep) => () => panels.forEach((panel) => panel.moveHead(layerStep, headStep));
  shell.keys.addPageKeys([
    { key: "[", label: "Previous layer", run: moveHead(-1, 0) }, { key: "]", label: "Next layer", run: moveHead(1, 0) },
    { key: ",", label: "Previous head", run: moveHead(0, -1) }, { key: ".", label: "Next head", run: moveHead(0, 1) },
    { key: "b", label: "Heads that align best", run: () => panels.forEach((panel) => panel.chooseBestHead()) },
  ]);
  const show = (newState) => {
    text = newState.t?.trim() || DEFAULT_TEXT;
    numBeams = Math.min(Math.max(Number(newState.beam) || 4, 1), 8);
    beamSlider.querySelector("input").value = numBeams;
    beamSlider.querySelector("output").textContent = numBeams;
    return Promise.all(panels.map((panel) => panel.show(newState, defaults[panel.letter], text, numBeams)));
  };
  shell.onStateChange(show);
  shell.bar.show({ t: DEFAULT_TEXT, ...state });
  await show(state);
  return () => {};
}
