// Arithmetic of attention weights: score, scaled score, bias, softmax, from query and key vectors.

import { indices, sum, writeNumber } from "./numbers.js";

const MAX_PRODUCTS = 8;
const TOLERANCE = 1e-3; // between a weight and its calculation from rounded numbers

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
	const calculated = calculateRow({
		query: vectorAt(vectors.query, maps.mapIndex * maps.rows + row),
		keys: indices(columns).map((key) => vectorAt(vectors.key, maps.mapIndex * columns + key)),
		visible: indices(columns).filter((key) => !Number.isNaN(maps.valueAt(row, key))),
		divisor: 1 / data.vectors.scale,
		softcap: data.vectors.softcap,
	});
	if (isRight(calculated, column, given, numbers.error)) return [title, ...Object.values(linesOf(calculated, column))];
	const note = "The model also adds a position bias, a sink or an intervention, which this page does not contain.";
	return [title, `The weight is ${writeNumber(given, decimals)}. ${note}`, ...commandHint(maps)];
}

// Command that shows the calculation if the page contains no queries and keys.
function commandHint({ data: { command, rows, down, across, tileSize }, row, mapRow, mapColumn }) {
	if (!command)
		return ['This page contains no queries and keys. In Python: look(..., steps=("weights", "query", "key"))'];
	const word = (rows[row * tileSize] ?? "").replaceAll("·", "").replaceAll("'", "'\\''");
	const flags = `--layer ${down[mapRow]} --head ${across[mapColumn]} --query '${word}' --step-by-step`;
	return ["The complete calculation with queries and keys:", `${command} ${flags}`];
}

/**
 * The weights of a row, step by step. A score is the sum of its terms: products of query and key, or of the vector
 * `additive` and tanh(query + key). `sink` is one more score without a key.
 */
export function calculateRow(inputs) {
	const { query, keys, visible, softcap, bias, sink, additive } = inputs;
	const divisor = isRoot(inputs.divisor, query.length) ? Math.sqrt(query.length) : inputs.divisor;
	const isAdditive = additive?.length > 0;
	const scored = visible.map((key) => {
		const terms = query.map((q, at) => (isAdditive ? additive[at] * Math.tanh(q + keys[key][at]) : q * keys[key][at]));
		const score = sum(terms);
		const scaled = softcap ? softcap * Math.tanh(score / divisor / softcap) : score / divisor;
		return { key, terms, score, scaled, biased: scaled + (bias?.[key] ?? 0) };
	});
	const largest = Math.max(...scored.map(({ biased }) => biased), sink ?? -Infinity);
	const powers = scored.map(({ biased }) => Math.exp(biased - largest));
	const total = sum(powers) + Math.exp((sink ?? -Infinity) - largest);
	const cells = scored.map((cell, at) => ({ ...cell, power: powers[at], weight: powers[at] / total }));
	return { ...inputs, divisor, isAdditive, cells, largest, total };
}

/** Whether the calculation reaches the weight of a key that the model has. */
export function isRight({ cells }, key, given, error = 0) {
	const cell = cells.find((one) => one.key === key);
	return Math.abs((cell?.weight ?? 0) - given) <= TOLERANCE + error;
}

/** The arithmetic of one weight of a calculated row as lines of text, by step; only steps that change something. */
export function linesOf(calculated, key) {
	const { query, keys, cells, softcap, bias, sink, largest, total, isAdditive, additive } = calculated;
	const { terms, score, scaled, biased, power, weight } = cells.find((one) => one.key === key);
	const write = (value) => writeNumber(value, 4);
	const products = isAdditive
		? writeSum(
				terms,
				(at) => `${inParentheses(additive[at])}·tanh(${write(query[at])} + ${inParentheses(keys[key][at])})`,
			)
		: writeProducts(query, keys[key]);
	const scaling = [`scaled = ${writeScaling(calculated, score)}`];
	if (softcap) {
		const divided = write(score / calculated.divisor);
		scaling.push(`softcap ${softcap}: ${softcap} · tanh(${divided} / ${softcap}) = ${write(scaled)}`);
	}
	const ofSink = sink == null ? "" : ` and the sink, e^(${write(sink)} − ${inParentheses(largest)})`;
	return {
		score: `score = ${isAdditive ? "v · tanh(q + k)" : "q · k"} = ${products} = ${write(score)}`,
		scaled: scaling.join("\n"),
		...(bias && { bias: `${write(scaled)} + bias ${inParentheses(bias[key])} = ${write(biased)}` }),
		power:
			`e^(${write(biased)} − ${inParentheses(largest)}) = ${write(power)}, where ${write(largest)} is the largest score ` +
			"of this row",
		weight:
			`weight = ${write(power)} / ${write(total)} = ${write(weight)}, divided by the sum over ` +
			`${cells.length} keys${ofSink}`,
	};
}

export function writeProducts(one, other) {
	const products = one.map((number, at) => number * other[at]);
	return writeSum(products, (at) => `${inParentheses(one[at])}·${inParentheses(other[at])}`);
}

// The largest terms one by one, and the sum of all others.
function writeSum(terms, writeTerm) {
	const order = indices(terms.length);
	if (order.length > MAX_PRODUCTS) order.sort((one, other) => Math.abs(terms[other]) - Math.abs(terms[one]));
	const numShown = order.length > MAX_PRODUCTS ? MAX_PRODUCTS - 2 : order.length;
	const shown = order.slice(0, numShown).map(writeTerm);
	const rest = order.slice(numShown).map((at) => terms[at]);
	if (rest.length) shown.push(`${inParentheses(sum(rest))} (${rest.length} smaller products)`);
	return shown.join(" + ");
}

function writeScaling({ divisor, query }, score) {
	const write = (value) => writeNumber(value, 4);
	if (isRoot(divisor, query.length)) return `${write(score)} / √${query.length} = ${write(score / divisor)}`;
	return divisor === 1
		? `${write(score)}: not divided`
		: `${write(score)} / ${write(divisor)} = ${write(score / divisor)}`;
}

const isRoot = (divisor, dimension) => Math.abs(divisor - Math.sqrt(dimension)) < 1e-4;

export function inParentheses(value, decimals = 4) {
	const written = writeNumber(value, decimals);
	return value < 0 ? `(${written})` : written;
}
