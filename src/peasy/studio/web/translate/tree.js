// A beam search as a tree: beginnings that were kept from left to right, the text that won stands out.

import { asTable, element, table } from "../element.js";
import { files } from "../picture.js";

const [ROW, GAP, FONT] = [27, 26, 13];
let pen;

/** @param {{branches: object[], found: object[]}} result of /api/beams */
export function drawTree({ branches, found, width }) {
  const roots = grouped(branches);
  let row = 0;
  const place = (group, x) => {
    group.x = x;
    group.room = widthOf(group.text, group.won);
    group.width = group.room + (group.mark ? widthOf(group.mark, group.won) : 0);
    group.children.forEach((child) => place(child, x + group.width + GAP));
    group.y = group.children.length ? (group.children[0].y + group.children.at(-1).y) / 2 : 14 + ROW * row++;
  };
  const root = { text: "", mark: "", children: roots, won: true };
  place(root, 6);
  const all = roots.flatMap(walk);
  const size = [Math.max(...all.map((group) => group.x + group.width)) + 12, row * ROW + 6];
  const svg = element("svg", { class: "tree", width: size[0], height: size[1], viewBox: `0 0 ${size.join(" ")}`, role: "img", "aria-label": `Beam search with ${width} beams: ${found.map(({ text }) => text).join("; ")}` },
    [root, ...all].flatMap(edges), element("circle", { cx: root.x + 3, cy: root.y, r: 4, fill: "currentColor" }), all.map(node));
  const rows = branches.map((branch) => [String(branch.step), beginning(branches, branch), branch.chance.toFixed(4), branch.logprob.toFixed(4), fate(branch)]);
  const columns = ["token", "beginning", "its chance", "log-probability", "what became of it"];
  return [
    element("div", { class: "tree-home", tabindex: 0, role: "group", "aria-label": "Tree of beams" }, svg),
    element("p", { class: "quiet" }, "● a text that ended, with its rank; × a beginning that was dropped because others were likelier. Thick lines are likely tokens."),
    asTable(element("div", {}, table("Texts", ["", "text", "score"], found.map(({ text, score }, at) => [String(at + 1), text, score.toFixed(4)])), table("Every branch", columns, rows)), "The tree as a table"),
    files("beams", () => svg, () => [columns, ...rows]),
  ];
}

/** Tokens that follow each other without a choice stand together as one. */
function grouped(branches) {
  const children = branches.map(() => []);
  branches.forEach((branch, at) => branch.parent >= 0 && children[branch.parent].push(at));
  const build = (first) => {
    const line = [first];
    while (children[line.at(-1)].length === 1) line.push(children[line.at(-1)][0]);
    const last = branches[line.at(-1)];
    const below = children[line.at(-1)].map(build).sort((one, other) => other.reach - one.reach);
    return {
      text: line.map((at) => branches[at].piece).join(""), tokens: line.map((at) => branches[at]), children: below, won: branches[first].best, last,
      mark: last.fate === "ended" ? `● ${last.rank + 1}.` : last.fate === "dropped" ? "×" : "", reach: Math.max(last.logprob, ...below.map(({ reach }) => reach)),
    };
  };
  return branches.flatMap((branch, at) => (branch.parent < 0 ? [build(at)] : [])).sort((one, other) => other.reach - one.reach);
}

function walk(group) {
  return [group, ...group.children.flatMap(walk)];
}

function edges(group) {
  return group.children.map((child) => {
    const [x, z] = [group.x + group.width + 3, child.x - 4];
    const thick = 0.8 + 3.4 * child.tokens[0].chance;
    return element("path", { class: child.won ? "branch won" : "branch", "stroke-width": thick, d: `M${x} ${group.y}C${(x + z) / 2} ${group.y} ${(x + z) / 2} ${child.y} ${z} ${child.y}` });
  });
}

function node(group) {
  const told = group.tokens.map(({ piece, chance }) => `${piece} ${chance.toFixed(3)}`).join(", ");
  return element("g", { class: group.won ? "won" : group.mark === "×" ? "gone" : null },
    element("title", {}, `${told}; log-probability ${group.last.logprob.toFixed(4)}; ${fate(group.last)}`),
    element("text", { class: "word", x: group.x, y: group.y + 4.5 }, group.text),
    group.mark && element("text", { x: group.x + group.room, y: group.y + 4.5 }, group.mark));
}

function fate({ fate: became, rank }) {
  return rank === null ? became : rank === 0 ? "won" : `ended, rank ${rank + 1}`;
}

function beginning(branches, branch) {
  return branch.parent < 0 ? branch.piece : beginning(branches, branches[branch.parent]) + branch.piece;
}

function widthOf(text, bold) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${bold ? "bold " : ""}${FONT}px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif`;
  return pen.measureText(text).width + 4;
}
