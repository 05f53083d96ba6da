// Meaning: words before and after training, texts on a map, and why two sentences match.

import { TextMap } from "../meaning/texts.js";
import { Why } from "../meaning/why.js";
import { Words } from "../meaning/words.js";
import { element } from "../element.js";
import { tabs } from "../tabs.js";

export const page = { name: "meaning", title: "Meaning", letter: "m" };

const PARTS = { words: Words, texts: TextMap, why: Why };
const TITLES = { words: "Words before and after", texts: "Texts on a map", why: "Why two match" };

export async function open(place, state, shell) {
  const models = await shell.bar.known(true, true);
  let now = state;
  let part = null;
  const show = (name) => {
    part = new PARTS[name](shell, models, now, (next) => { now = { ...shell.state }; chooser.choose(next); });
    part.start();
    return part.element;
  };
  const chooser = tabs(Object.keys(PARTS).map((name) => ({ name, title: TITLES[name], show: () => show(name) })), (name) => {
    shell.set({ tab: name === "words" ? null : name }, { push: true });
    now = shell.state;
  });
  place.append(element("h1", {}, "Meaning"), element("p", { class: "lead" }, "A model turns words and texts into lists of numbers. What is used alike gets numbers that point the same way: near on the map is alike in meaning, as far as the model knows."), chooser.element);
  shell.exports(() => part.asked());
  shell.copies(() => [{ label: "The answer as JSON", text: () => JSON.stringify(part.answer?.result ?? null) }]);
  const choose = (next) => {
    now = next;
    return chooser.choose(PARTS[next.tab] ? next.tab : "words", false);
  };
  shell.onState(choose);
  await choose(state);
  return () => {};
}
