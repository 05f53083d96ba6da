// Number formatting by the same rule as render/number.py, for tables that the page draws itself.

const HUGE = 1e9;
const TOLERANCE = 1e-12;
const EXTRA_DIGITS = 30; // enough digits to tell an exact tie from a double close to one

/** A number with that many decimals; null is minus infinity, as in the server's responses. */
export function writeNumber(value, decimals = 4) {
  if (value === null) return "−∞";
  if (typeof value === "string") return value;
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Math.abs(value) >= HUGE) return value.toExponential(decimals).replace(/e([+-])(\d)$/, "e$10$2");
  const written = toFixedHalfEven(value, decimals);
  return Number(written) === 0 ? written.replace("-", "") : written;
}

/** Decimals that these numbers need, at most `maxDecimals`: integers are written without. */
export function decimalsFor(rows, maxDecimals) {
  const numbers = rows.flat().filter((value) => typeof value === "number" && Number.isFinite(value));
  const isExact = (value, decimals) => Math.abs(Number(toFixedHalfEven(value, decimals)) - value) <= TOLERANCE * Math.max(1, Math.abs(value));
  for (let decimals = 0; decimals < maxDecimals; decimals++) {
    if (numbers.every((value) => isExact(value, decimals))) return decimals;
  }
  return maxDecimals;
}

// Ties go to the even digit, as in Python; toFixed alone rounds them away from zero.
function toFixedHalfEven(value, decimals) {
  const written = value.toFixed(decimals);
  const longer = value.toFixed(decimals + EXTRA_DIGITS);
  if (!/^50+$/.test(longer.slice(-EXTRA_DIGITS))) return written;
  const truncated = longer.slice(0, -EXTRA_DIGITS).replace(/\.$/, "");
  return Number(truncated.at(-1)) % 2 === 0 ? truncated : written;
}

/** An integer with thousands separators. */
export function formatCount(value) {
  return Number(value).toLocaleString("en");
}

/** A probability as short text: .93; one that would round to zero is "<.01". */
export function formatProbability(value, decimals = 2) {
  if (value < 0.5 * 10 ** -decimals) return `<${(10 ** -decimals).toFixed(decimals).slice(1)}`;
  return value.toFixed(decimals).replace(/^0\./, ".");
}
