// The example as data that can be changed: numbers, tokens, settings; small enough for a link.

const KEPT = ["title", "says", "source", "note", "tokens", "features", "x", "row_dim", "col_dim", "source_tokens", "source_x", "w_q", "w_k", "w_v", "w_o", "q", "k", "v", "weights", "heads", "scoring", "scale", "mask", "bias", "causal", "window", "normalise", "until"];
const USUAL = { row_dim: 0, col_dim: 1, heads: 1, scoring: "scaled-dot", causal: false, normalise: "softmax" };
const MOST_LINK = 6000; // characters of an example in a link; servers refuse much longer ones

/** Which field of the example holds the numbers of a step; steps that follow from others have none. */
export function fieldOf(step, example) {
  const fields = { x: "x", source: "source_x", w_q: "w_q", w_k: "w_k", w_v: "w_v", w_o: "w_o", query: "q", key: "k", value: "v", weights: "weights" };
  const name = fields[step];
  return name && example[name] ? name : null;
}

/** Without what is empty or as usual. */
export function compact(example) {
  const kept = {};
  for (const name of KEPT) {
    const value = example[name];
    const empty = value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length);
    if (!empty && value !== USUAL[name]) kept[name] = value;
  }
  return kept;
}

/** As text for the URL; null where it would be too long. */
export function link(example) {
  const { says, source, note, ...short } = compact(example);
  const text = JSON.stringify(short);
  return text.length <= MOST_LINK ? text : null;
}

export function read(text) {
  try {
    const found = JSON.parse(text);
    return found && typeof found === "object" && Array.isArray(found.tokens) ? found : null;
  } catch {
    return null;
  }
}

/** The example with one number changed. */
export function withNumber(example, field, row, column, value) {
  const grid = example[field].map((each) => [...each]);
  if (field === "x" && example.row_dim === 1) grid[column][row] = value;
  else grid[row][column] = value;
  return { ...example, [field]: grid };
}

/** The example with a pasted block of cells; a first column of words names the tokens, and the matrix grows to fit. */
export function withBlock(example, field, row, column, grid, read) {
  const plain = upright(example);
  let [cells, tokens] = [grid, [...plain.tokens]];
  const wordy = field === "x" && cells.every((line) => line.length > 1 && read(line[0]) === null);
  if (wordy && column === 0) {
    cells.forEach((line, r) => (tokens[row + r] = line[0]));
    cells = cells.map((line) => line.slice(1));
  }
  const numbers = cells.map((line) => line.map((cell) => read(cell) ?? 0));
  const [height, width] = [Math.max(plain[field].length, row + numbers.length), Math.max(plain[field][0].length, column + Math.max(...numbers.map((line) => line.length)))];
  const grown = resized({ ...plain, tokens }, field, height, width);
  numbers.forEach((line, r) => line.forEach((value, c) => (grown[field][row + r][column + c] = value)));
  return grown;
}

/** With as many tokens and features as asked; what is new is 0, and the weight matrices fit again. */
export function resized(example, field, height, width) {
  const made = upright(example);
  made[field] = fit(made[field], height, width);
  if (field === "x" || field === "q" || (field === "weights" && !made.source_tokens?.length)) made.tokens = names(made.tokens, height);
  if (field === "x") {
    for (const name of ["w_q", "w_k", "w_v"]) {
      if (made[name] && !(name !== "w_q" && made.source_x)) made[name] = fit(made[name], width, made[name][0].length);
    }
    made.features = made.features?.length ? names(made.features, width) : made.features;
  }
  if (["source_x", "k", "v"].includes(field) && made.source_tokens?.length) made.source_tokens = names(made.source_tokens, height);
  const keys = made.source_tokens?.length || made.tokens.length;
  if (made.mask) made.mask = fit(made.mask, made.tokens.length, keys, true);
  if (made.bias) made.bias = null;
  return made;
}

function upright(example) {
  const made = structuredClone(example);
  if (made.row_dim === 1 && made.x) made.x = made.x[0].map((_, at) => made.x.map((line) => line[at]));
  return { ...made, row_dim: 0, col_dim: 1, variants: [], written: [], plane: [], project: [] };
}

function fit(grid, height, width, fresh = 0) {
  return Array.from({ length: height }, (_, r) => Array.from({ length: width }, (_, c) => grid[r]?.[c] ?? fresh));
}

function names(tokens, count) {
  return Array.from({ length: count }, (_, at) => tokens[at] ?? `word ${at + 1}`);
}

/** An example to start from, where somebody wants their own numbers. */
export const FRESH = { title: "Own numbers", tokens: ["one", "two", "three"], x: [[1, 0], [0, 1], [1, 1]], w_q: [[1, 0], [0, 1]], w_k: [[1, 0], [0, 1]], w_v: [[1, 0], [0, 1]] };

/** The additive scoring of 2015 with plain weights, for vectors of this width. */
export function additive(queryWidth, keyWidth) {
  const plain = (height) => Array.from({ length: height }, (_, r) => Array.from({ length: 2 }, (_, c) => Number(r % 2 === c)));
  return { kind: "additive", w: plain(queryWidth), u: plain(keyWidth), v: [1, 1] };
}
