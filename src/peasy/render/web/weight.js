// Arithmetic of one attention weight: score, scaled score, softmax, from the query and key vectors.

import { dot, indices, sum, writeNumber } from "./numbers.js";

const MAX_PRODUCTS = 8;

// Lines about the selected cell of attention maps: a title, then its arithmetic or the command that prints it.
export function explainCell(maps) {
	const { row, column, columns, data, vectors, numbers } = maps;
	const { tileSize, reduction, decimals } = data;
	const title = `${maps.mapName()}: ${maps.labelOf(data.rows, row)} → ${maps.labelOf(data.columns, column)}`;
	if (tileSize > 1) return [title, `The ${reduction} of up to ${tileSize * tileSize} weights.`, ...commandHint(maps)];
	const given = maps.valueAt(row, column);
	if (Number.isNaN(given)) return [title, "Masked: this query may not attend to this key, so its weight is 0."];
	if (!vectors) return [title, ...commandHint(maps)];
	const dimension = data.vectors.query.shape.at(-1);
	const vectorAt = (values, index) => [...values.subarray(index * dimension, (index + 1) * dimension)];
	const visible = indices(columns).filter((key) => !Number.isNaN(maps.valueAt(row, key)));
	const keys = indices(columns).map((key) => vectorAt(vectors.key, maps.mapIndex * columns + key));
	const query = vectorAt(vectors.query, maps.mapIndex * maps.rows + row);
	const { scale, softcap } = data.vectors;
	const { lines, weight } = explainWeight({ query, keys, visible, keyIndex: column, decimals: 4, scale, softcap });
	if (Math.abs(weight - given) <= 2e-3 + numbers.error) return [title, ...lines];
	const note = "it also adds a position bias or an intervention, which this page does not contain.";
	return [title, ...lines, `The model's weight is ${writeNumber(given, decimals)}: ${note}`];
}

// Command that shows the calculation if the page contains no queries and keys.
function commandHint({ data: { command, rows, down, across, tileSize }, row, mapRow, mapColumn }) {
	if (!command)
		return ['This page contains no queries and keys. In Python: look(..., steps=("weights", "query", "key"))'];
	const word = (rows[row * tileSize] ?? "").replaceAll("·", "").replaceAll("'", "'\\''");
	const flags = `--layer ${down[mapRow]} --head ${across[mapColumn]} --query '${word}' --step-by-step`;
	return ["The complete calculation with queries and keys:", `${command} ${flags}`];
}

// `query` is a vector, `keys` all key vectors; `visible` are the unmasked key positions, `keyIndex` the explained one.
export function explainWeight({ query, keys, visible, keyIndex, scale, softcap = 0, decimals }) {
	const write = (value) => writeNumber(value, decimals);
	const scaleScore = (score) => (softcap ? Math.tanh((score * scale) / softcap) * softcap : score * scale);
	const scaled = new Map(visible.map((key) => [key, scaleScore(dot(query, keys[key]))]));
	const largest = Math.max(...scaled.values());
	const total = sum([...scaled.values()].map((value) => Math.exp(value - largest)));
	const [score, scaledScore] = [dot(query, keys[keyIndex]), scaled.get(keyIndex)];
	const power = Math.exp(scaledScore - largest);
	const lines = [
		`score = q · k = ${writeProducts(query, keys[keyIndex], write)} = ${write(score)}`,
		`scaled = ${writeScaling(score, scale, query.length, write)} = ${write(score * scale)}`,
	];
	if (softcap) {
		lines.push(`softcap ${softcap}: ${softcap} · tanh(${write(score * scale)} / ${softcap}) = ${write(scaledScore)}`);
	}
	lines.push(
		`e^(${write(scaledScore)} − ${write(largest)}) = ${write(power)}, where ${write(largest)} is the largest score ` +
			"of this row",
		`weight = ${write(power)} / ${write(total)} = ${write(power / total)}, divided by the sum over ` +
			`${visible.length} keys`,
	);
	return { lines, weight: power / total };
}

// The largest products one by one, and the sum of all others.
export function writeProducts(query, key, write) {
	const products = query.map((component, index) => [component, key[index], component * key[index]]);
	const largestFirst = (one, other) => Math.abs(other[2]) - Math.abs(one[2]);
	const shown =
		products.length <= MAX_PRODUCTS ? products : [...products].sort(largestFirst).slice(0, MAX_PRODUCTS - 2);
	const terms = shown.map(([one, other]) => `${parenthesize(one, write)}·${parenthesize(other, write)}`);
	if (shown.length < products.length) {
		const rest = sum([...products.map(([, , product]) => product), ...shown.map(([, , product]) => -product)]);
		terms.push(`${parenthesize(rest, write)} (${products.length - shown.length} smaller products)`);
	}
	return terms.join(" + ");
}

function writeScaling(score, scale, dimension, write) {
	if (Math.abs(scale - dimension ** -0.5) < 1e-9) return `${write(score)} / √${dimension}`;
	return `${parenthesize(score, write)} · ${Number(scale.toPrecision(6))}`;
}

export function parenthesize(value, write) {
	return value < 0 ? `(${write(value)})` : write(value);
}
