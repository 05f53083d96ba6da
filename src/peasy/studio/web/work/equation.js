// Which matrices stand beside each other in each step, and what a number of the result was made of.

/** @typedef {{name: string, transposed?: boolean}} Operand */

export const SECTIONS = [
  { number: 1, title: "X", says: "Input", steps: ["x", "source"] },
  { number: 2, title: "Q, K, V", says: "Query, key and value", steps: ["query", "key", "value"] },
  { number: 3, title: "QKᵀ", says: "Scores", steps: ["scores"] },
  { number: 4, title: "/√dₖ", says: "Scale and mask", steps: ["scaled", "masked"] },
  { number: 5, title: "softmax", says: "Weights", steps: ["weights"] },
  { number: 6, title: "· V", says: "Weighted sum", steps: ["context"] },
  { number: 7, title: "heads", says: "All heads", steps: ["concat", "output"] },
];

const base = (name) => name.split(".").at(-1);
const headOf = (name) => Number(/^head-(\d+)\./.exec(name)?.[1] ?? 0);

/** The sections that an answer has, each with its steps of one head (those of no head belong to all). */
export function sectionsOf(steps, head) {
  return SECTIONS.map((section) => ({
    ...section,
    steps: steps.filter((step) => section.steps.includes(base(step.name)) && [0, head].includes(headOf(step.name))),
  })).filter((section) => section.steps.length);
}

export function headsOf(steps) {
  return [...new Set(steps.map((step) => headOf(step.name)))].filter(Boolean);
}

/** The equation of a step: signs and operands before the result; an operand that is not there is left out. */
export function equationOf(step, steps, example) {
  const head = headOf(step.name);
  const find = (name) => steps.find((each) => each.name === (head ? `head-${head}.${name}` : name)) ?? steps.find((each) => each.name === name);
  const there = (name, more = {}) => (find(name) ? [{ step: find(name), ...more }] : []);
  const projected = (from, by) => (find(by) ? [...there(from), "·", ...there(by), "="] : []);
  switch (base(step.name)) {
    case "query": return projected("x", "w_q");
    case "key": return projected(find("source") ? "source" : "x", "w_k");
    case "value": return projected(find("source") ? "source" : "x", "w_v");
    case "scores": return scored(example, there);
    case "scaled": return [...there("scores"), scaleSign(example), "="];
    case "masked": return ["+ M", "="];
    case "weights": return find("scores") ? [normaliseSign(example), ...(find("masked") ? there("masked") : there("scaled")), "="] : [];
    case "context": return [...there("weights"), "·", ...there("value"), "="];
    case "output": return [...there("concat"), "·", ...there("w_o"), "="];
    default: return [];
  }
}

function scored(example, there) {
  const kind = example.scoring?.kind ?? example.scoring;
  if (kind === "additive") return ["v · tanh(", ...there("query"), "W +", ...there("key"), "U ) ="];
  if (kind === "cosine") return ["cos(", ...there("query"), ",", ...there("key"), ") ="];
  return [...there("query"), "·", ...there("key", { transposed: true }), "="];
}

function scaleSign(example) {
  if (example.scale !== null && example.scale !== undefined) return `× ${example.scale}`;
  const scoring = example.scoring?.kind ?? example.scoring;
  return scoring === "scaled-dot" ? "/ √dₖ" : "× 1";
}

function normaliseSign(example) {
  return { softmax: "softmax", sum: "÷ sum of row", none: "as it is" }[example.normalise] ?? "softmax";
}

/** What to light in an operand when a cell of the result is picked. */
export function usedBy(result, operand, row, column) {
  const [made, from] = [base(result.name), base(operand.step.name)];
  if (operand.transposed) return { column };
  if (["scaled", "masked"].includes(made)) return { cell: [row, column] };
  if (made === "weights") return { row };
  if (made === "scores") return from === "key" ? { row: column } : { row };
  if (["w_q", "w_k", "w_v", "w_o", "value"].includes(from)) return { column };
  return { row };
}

export { base, headOf };
