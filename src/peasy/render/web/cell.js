// How one weight came about: score, scaled, softmax, weight, from the query and the keys themselves.

import { writeNumber } from "./numbers.js";

const MOST = 8;

// `query` is a vector and `keys` all of them; `seen` are the places that may be looked at, `at` is the one asked for.
export function explainWeight({ query, keys, seen, at, scale, softcap, decimals }) {
  const write = (value) => writeNumber(value, decimals);
  const product = (key) => keys[key].reduce((sum, part, place) => sum + part * query[place], 0);
  const bent = (score) => (softcap ? Math.tanh((score * scale) / softcap) * softcap : score * scale);
  const scaled = new Map(seen.map((key) => [key, bent(product(key))]));
  const largest = Math.max(...scaled.values());
  const total = [...scaled.values()].reduce((sum, each) => sum + Math.exp(each - largest), 0);
  const [score, own] = [product(at), scaled.get(at)];
  const power = Math.exp(own - largest);
  const lines = [`score = q · k = ${products(query, keys[at], write)} = ${write(score)}`, `scaled = ${divided(score, scale, query.length, write)} = ${write(score * scale)}`];
  if (softcap) lines.push(`kept within ${softcap}: ${softcap} · tanh(${write(score * scale)} / ${softcap}) = ${write(own)}`);
  lines.push(`e^(${write(own)} − ${write(largest)}) = ${write(power)}, where ${write(largest)} is the largest of this row`);
  lines.push(`weight = ${write(power)} / ${write(total)} = ${write(power / total)}, by the sum over ${seen.length} keys`);
  return { lines, weight: power / total };
}

// The largest products one by one, and the sum of all others.
function products(query, key, write) {
  const all = query.map((part, place) => [part, key[place], part * key[place]]);
  const chosen = all.length <= MOST ? all : [...all].sort((one, other) => Math.abs(other[2]) - Math.abs(one[2])).slice(0, MOST - 2);
  const listed = chosen.map(([one, other]) => `${signed(one, write)}·${signed(other, write)}`);
  if (chosen.length < all.length) {
    const rest = all.reduce((sum, [, , part]) => sum + part, 0) - chosen.reduce((sum, [, , part]) => sum + part, 0);
    listed.push(`${signed(rest, write)} (${all.length - chosen.length} smaller products)`);
  }
  return listed.join(" + ");
}

function divided(score, scale, width, write) {
  if (Math.abs(scale - width ** -0.5) < 1e-9) return `${write(score)} / √${width}`;
  return `${signed(score, write)} · ${Number(scale.toPrecision(6))}`;
}

function signed(value, write) {
  return value < 0 ? `(${write(value)})` : write(value);
}
