// Number formatting, and quantized arrays: integer steps between a minimum and a maximum, deflated; the last code means
// "masked".

const HUGE = 1e9;
const MIN_CLIPPED_VALUES = 2000;
const CLIPPED_SHARE = 0.005;
const EXTRA_DIGITS = 30; // enough digits to tell an exact tie from a double close to one

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export const indices = (count) => Array.from({ length: count }, (_, index) => index);

export const sum = (values) => values.reduce((total, value) => total + value, 0);

export const argmax = (values) => values.indexOf(Math.max(...values));

export const dot = (one, other) => one.reduce((total, value, index) => total + value * other[index], 0);

// The largest absolute value, and never 0: to divide by.
export const reachOf = (values) => Math.max(...values.map(Math.abs), 1e-9);

export const formatCount = (value) => value.toLocaleString("en");

// A number with this many decimals, by the same rule as render/number.py; null is minus infinity, NaN a masked cell.
export function writeNumber(value, decimals = 4) {
	if (value === null || value === -Infinity) return "−∞";
	if (value === Infinity) return "∞";
	if (Number.isNaN(value)) return "masked";
	if (Math.abs(value) >= HUGE) return value.toExponential(decimals).replace(/e([+-])(\d)$/, "e$10$2");
	const written = toFixedHalfEven(value, decimals);
	return Number(written) === 0 ? written.replace("-", "") : written;
}

// Ties go to the even digit, as in Python; toFixed alone rounds them away from zero.
export function toFixedHalfEven(value, decimals) {
	const written = value.toFixed(decimals);
	const longer = value.toFixed(decimals + EXTRA_DIGITS);
	if (!/^50+$/.test(longer.slice(-EXTRA_DIGITS))) return written;
	const truncated = longer.slice(0, -EXTRA_DIGITS).replace(/\.$/, "");
	return Number(truncated.at(-1)) % 2 === 0 ? truncated : written;
}

export async function unpackNumbers(packed) {
	const buffer = await inflate(packed.data);
	const codes = packed.bytes === 2 ? new Uint16Array(buffer) : new Uint8Array(buffer);
	const last = packed.bytes === 2 ? 65535 : 255;
	const step = (packed.high - packed.low) / (last - 1);
	return {
		...packed,
		codes,
		last,
		step,
		at: (index) => (codes[index] === last ? NaN : packed.low + codes[index] * step),
	};
}

// Unquantized float32 values, for calculations.
export async function unpackFloats(packed) {
	return new Float32Array(await inflate(packed.data));
}

// Unsigned 32-bit integers, such as positions.
export async function unpackIntegers(data) {
	return new Uint32Array(await inflate(data));
}

export function decodeBase64(data) {
	if (Uint8Array.fromBase64) return Uint8Array.fromBase64(data);
	const characters = atob(data);
	const bytes = new Uint8Array(characters.length); // a plain loop: Uint8Array.from takes ten times as long
	for (let index = 0; index < characters.length; index++) bytes[index] = characters.charCodeAt(index);
	return bytes;
}

function inflate(data) {
	const compressed = new Blob([decodeBase64(data)]).stream();
	return new Response(compressed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

// Colour range of `count` values from `start`; symmetric around zero if any value is negative. Of many values the
// largest 0.5 % share the last colour: the first rows of a causal map are near 1 whatever the model does.
export function rangeOf(numbers, start, count) {
	const counts = new Uint32Array(numbers.last + 1);
	for (let index = start; index < start + count; index++) counts[numbers.codes[index]]++;
	const visible = count - counts[numbers.last];
	counts[numbers.last] = 0;
	const low = counts.findIndex((number) => number > 0);
	if (low < 0) return { low: 0, high: 0, signed: false };
	const maximum = counts.findLastIndex((number) => number > 0);
	let high = maximum;
	if (visible > MIN_CLIPPED_VALUES)
		for (let above = counts[high]; above < CLIPPED_SHARE * visible && high > low; above += counts[high]) high--;
	const range = colourRange([low, high].map((code) => numbers.low + code * numbers.step));
	return range.high > 0 ? { ...range, clipped: high < maximum } : colourRange([numbers.low + maximum * numbers.step]);
}

// Smallest and largest of any number of values: as arguments of Math.min, a million would overflow the stack.
export function extent(values) {
	let [low, high] = [Infinity, -Infinity];
	for (const value of values) {
		if (value < low) low = value;
		if (value > high) high = value;
	}
	return [low, high];
}

// Range from zero to the largest of some values; symmetric around zero if any is negative.
export function colourRange(values) {
	const [minimum, maximum] = extent(values);
	const limit = Math.max(-minimum, maximum);
	return minimum < 0 ? { low: -limit, high: limit, signed: true } : { low: 0, high: maximum, signed: false };
}
