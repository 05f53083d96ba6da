// What the server drew (tables, maps, links, formulas) on the page, with its cells explained and its figures live.

import { explainCells } from "/web/render/arithmetic.js";
import "/web/render/maps.js";
import "/web/render/links.js";
import "/web/render/plane.js";
import { element } from "./element.js";

const LIVE = "peasy-maps, peasy-links, peasy-plane";

/**
 * The drawing of an answer (asked for with `html: true`) as an element.
 * The server escapes every text in it, and scripts that come this way never run.
 * @param {{html: string, arithmetic: Record<string, string[]>}} answer
 */
export function drawing(answer) {
  const parsed = new DOMParser().parseFromString(answer.html, "text/html");
  const content = parsed.querySelector("main") ?? parsed.body;
  content.querySelector(":scope > h1")?.remove();
  const home = element("div", { class: "drawn" });
  const held = takeData(content);
  home.append(...document.importNode(content, true).childNodes);
  home.querySelectorAll(LIVE).forEach((figure, at) => {
    if (held[at]) figure.data = held[at];
  });
  // Tables may scroll sideways: what scrolls must be reachable by keyboard.
  home.querySelectorAll("figure, div.formula").forEach((scroller) => {
    if (!scroller.querySelector("[data-cell]")) scroller.tabIndex = 0;
  });
  explainCells(home, answer.arithmetic ?? {});
  return home;
}

// The numbers of live figures travel in script elements; the page takes no script in, so they are handed over as data.
function takeData(content) {
  return [...content.querySelectorAll(LIVE)].map((figure) => {
    const stored = figure.querySelector(':scope > script[type="application/json"]');
    stored?.remove();
    return stored ? JSON.parse(stored.textContent) : null;
  });
}

/** A file from the server, saved by the browser. */
export function saveBlob(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
