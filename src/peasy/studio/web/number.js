// How a number is written: the rule of all of peasy's formats (render/number.py), here for tables the page draws itself.

const HUGE = 1e9;
const CLOSE = 1e-12;
const SURE = 30; // digits after which no double that is not a tie still looks like one

/** A number at that many decimals; null stands for minus infinity, as in the server's answers. */
export function writeNumber(value, decimals = 4) {
  if (value === null) return "−∞";
  if (typeof value === "string") return value;
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Math.abs(value) >= HUGE) return value.toExponential(decimals).replace(/e([+-])(\d)$/, "e$10$2");
  const written = fixed(value, decimals);
  return Number(written) === 0 ? written.replace("-", "") : written;
}

/** How many decimals these numbers need, at most `most`: whole numbers look whole. */
export function decimalsFor(rows, most) {
  const numbers = rows.flat().filter((each) => typeof each === "number" && Number.isFinite(each));
  for (let decimals = 0; decimals < most; decimals++) {
    if (numbers.every((each) => Math.abs(Number(fixed(each, decimals)) - each) <= CLOSE * Math.max(1, Math.abs(each)))) return decimals;
  }
  return most;
}

// A number in the very middle goes to the even digit, as in Python; toFixed alone would round it away from zero.
function fixed(value, decimals) {
  const written = value.toFixed(decimals);
  const longer = value.toFixed(decimals + SURE);
  if (!/^50+$/.test(longer.slice(-SURE))) return written;
  const below = longer.slice(0, -SURE).replace(/\.$/, "");
  return Number(below.at(-1)) % 2 === 0 ? below : written;
}

/** A large whole number with commas. */
export function count(value) {
  return Number(value).toLocaleString("en");
}

/** A share of 1 as a short text: .93; what would be nothing but noughts is "<.01", for no token is impossible. */
export function share(value, decimals = 2) {
  if (value < 0.5 * 10 ** -decimals) return `<${(10 ** -decimals).toFixed(decimals).slice(1)}`;
  return value.toFixed(decimals).replace(/^0\./, ".");
}
