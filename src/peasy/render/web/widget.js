// A notebook's door to the same modules: the page stands in a shadow root, so that neither styles the other.

import { explainCells } from "./arithmetic.js";

function render({ model, el }) {
  const home = document.createElement("div");
  const root = home.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(model.get("style"));
  root.adoptedStyleSheets = [sheet];
  // The content is made by peasy: every text in it is escaped, and scripts set this way never run.
  const content = new DOMParser().parseFromString(model.get("content"), "text/html");
  root.append(...document.importNode(content.body, true).childNodes);
  explainCells(root, JSON.parse(model.get("arithmetic")));
  el.append(home);
}

export default { render };
