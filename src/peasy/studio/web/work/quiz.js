// A quiz on one table: some cells are hidden, what is typed is marked like `peasy check` does it.

import { button, element } from "../element.js";
import { Matrix } from "../matrix.js";
import { compact } from "./example.js";

const SIGNS = { right: "✓", wrong: "✗", cut: "✂", follows: "↳", blank: "?" };
const SAID = { right: "right", wrong: "wrong", cut: "cut off instead of rounded", follows: "right after an earlier mistake", blank: "no answer yet" };

/** Hidden cells: about half of them, the same for the same table, never none. */
export function hiddenCells(step, all) {
  const places = step.values.flatMap((row, r) => row.map((_, c) => `${r},${c}`));
  if (all) return new Set(places);
  return new Set(places.filter((_, at) => (at * 7 + step.values.length * 3) % 5 < 3).concat(places.slice(-1)));
}

/** The table with open cells, a button that marks it, and one that gives the answers. */
export function quiz(step, spec, example, shell, again) {
  const matrix = new Matrix({ ...spec, hidden: hiddenCells(step, false), onpick: undefined });
  const verdict = element("p", { class: "verdict", role: "status" });
  const reasons = element("ul", { class: "reasons" });
  const answers = () => [...matrix.element.querySelectorAll("input.quiz")];
  const mark = async () => {
    try {
      const answer = await shell.ask("check", { example: { ...compact(example), written: [written(step, matrix)] } });
      show(answer.result, step, matrix, verdict, reasons);
    } catch (error) {
      shell.fail(error, verdict);
    }
  };
  const reveal = () => answers().forEach((input) => {
    const [row, column] = input.dataset.at.split(",").map(Number);
    input.value = String(Number(step.values[row][column]?.toFixed(4) ?? -Infinity)).replace("-Infinity", "-∞");
  });
  matrix.element.addEventListener("keydown", (event) => event.key === "Enter" && mark());
  const bar = element("div", { class: "row" }, button("Mark", mark, { class: "plain main" }), button("Show the answers", () => { reveal(); mark(); }), button("Once more", again));
  return { matrix, element: element("div", { class: "quiz" }, matrix.element, element("p", { class: "quiet" }, "Work out the open cells; two decimals are enough. Enter marks them."), bar, verdict, reasons) };
}

// What is open but not answered stays blank; what is shown is as the server computed it.
function written(step, matrix) {
  const cells = matrix.cells.map((row) => row.map((cell) => {
    const input = cell.querySelector("input");
    return input ? input.value.trim() : cell.textContent;
  }));
  return { table: step.name, cells, rows: step.rows.map(String) };
}

function show(result, step, matrix, verdict, reasons) {
  const found = new Map(result.cells.map((cell) => [`${cell.row}\u0000${cell.column}`, cell]));
  const counts = { right: 0, wrong: 0, cut: 0, follows: 0, blank: 0 };
  const why = [];
  matrix.cells.forEach((row, r) => row.forEach((cell, c) => {
    const input = cell.querySelector("input");
    if (!input) return;
    const judged = found.get(`${step.rows[r]}\u0000${step.columns[c]}`);
    const is = input.value.trim() === "" ? "blank" : judged?.verdict ?? "blank";
    counts[is] += 1;
    cell.dataset.verdict = is;
    cell.querySelector(".sign")?.remove();
    cell.append(element("span", { class: "sign", title: SAID[is] }, SIGNS[is], element("span", { class: "unseen" }, SAID[is])));
    if (is === "wrong" || is === "cut") why.push(element("li", {}, element("b", {}, `${step.rows[r]} × ${step.columns[c]}: `), judged.why));
  }));
  const asked = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const passed = counts.right + counts.cut + counts.follows === asked;
  verdict.className = `verdict ${passed ? "good" : counts.wrong ? "bad" : "note"}`;
  verdict.textContent = `${counts.right} of ${asked} right${counts.wrong ? `, ${counts.wrong} wrong` : ""}${counts.cut ? `, ${counts.cut} cut off instead of rounded` : ""}${counts.blank ? `, ${counts.blank} open` : ""}.`;
  reasons.replaceChildren(...why);
}
