// Page Meaning: words before and after training, map of texts, similarity of two sentences.

import { TextMap } from "../meaning/texts.js";
import { SimilarityTab } from "../meaning/similarity.js";
import { WordMap } from "../meaning/words.js";
import { element } from "../element.js";
import { tabs } from "../tabs.js";

export const page = { name: "meaning", title: "Meaning", letter: "m" };

const TAB_CLASSES = { words: WordMap, texts: TextMap, why: SimilarityTab };
const TITLES = { words: "Words before and after", texts: "Texts on a map", why: "Compare two sentences" };

export async function open(place, state, shell) {
  const models = await shell.bar.listModels(true, true);
  let currentState = state;
  let currentTab = null;
  const showTab = (name) => {
    currentTab = new TAB_CLASSES[name](shell, models, currentState, (other) => { currentState = { ...shell.state }; tabBar.choose(other); });
    currentTab.start();
    return currentTab.element;
  };
  const tabBar = tabs(Object.keys(TAB_CLASSES).map((name) => ({ name, title: TITLES[name], show: () => showTab(name) })), (name) => {
    shell.setState({ tab: name === "words" ? null : name }, { push: true });
    currentState = shell.state;
  });
  place.append(element("h1", {}, "Meaning"), element("p", { class: "lead" }, "A model turns words and texts into vectors. Words used in similar contexts get similar vectors: what is near on the map has a similar meaning, as far as the model knows."), tabBar.element);
  shell.setExports(() => currentTab.buildRequest());
  shell.setCopyItems(() => [{ label: "Result as JSON", text: () => JSON.stringify(currentTab.response?.result ?? null) }]);
  const show = (newState) => {
    currentState = newState;
    return tabBar.choose(TAB_CLASSES[newState.tab] ? newState.tab : "words", false);
  };
  shell.onStateChange(show);
  await show(state);
  return () => {};
}
