// Moves by keys: in tables and lists, and over the layers and heads of a model.

export const ARROW_MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// Index in a list of `count` that an arrow key, Home or End leads to, around its ends; undefined for other keys.
export function nextIndex({ key }, current, count) {
	const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
	const next = { Home: 0, End: count - 1 }[key] ?? (step && current + step);
	return next === undefined ? undefined : (next + count) % count;
}

// Bindings that move by layers and heads; `move(layers, heads)` gets the change of each.
export function headKeys(move) {
	const moves = [
		["[", "Previous layer", -1, 0],
		["]", "Next layer", 1, 0],
		[",", "Previous head", 0, -1],
		[".", "Next head", 0, 1],
	];
	return moves.map(([key, label, ...change]) => ({ key, label, run: () => move(...change) }));
}
