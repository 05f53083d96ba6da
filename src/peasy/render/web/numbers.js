// Quantized arrays: integer steps between a minimum and a maximum, deflated; the last code means "masked".

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

function inflate(data) {
  if (Uint8Array.fromBase64) return decompress(Uint8Array.fromBase64(data));
  const characters = atob(data);
  const bytes = new Uint8Array(characters.length); // a plain loop: Uint8Array.from takes ten times as long
  for (let index = 0; index < characters.length; index++) bytes[index] = characters.charCodeAt(index);
  return decompress(bytes);
}

function decompress(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

export function writeNumber(value, decimals) {
  if (Number.isNaN(value)) return "masked";
  const written = value.toFixed(decimals);
  return Number(written) === 0 ? written.replace("-", "") : written;
}

// Colour range of `count` values from `start`; symmetric around zero if any value is negative.
export function rangeOf(numbers, start, count) {
  let low = numbers.last;
  let high = -1;
  for (let index = start; index < start + count; index++) {
    const code = numbers.codes[index];
    if (code === numbers.last) continue;
    if (code < low) low = code;
    if (code > high) high = code;
  }
  if (high < 0) return { low: 0, high: 0, signed: false };
  return colourRange(numbers.low + low * numbers.step, numbers.low + high * numbers.step);
}

// Union of several ranges.
export function rangeOfAll(ranges) {
  return colourRange(Math.min(...ranges.map((range) => range.low)), Math.max(...ranges.map((range) => range.high)));
}

function colourRange(minimum, maximum) {
  const limit = Math.max(-minimum, maximum);
  return minimum < 0 ? { low: -limit, high: limit, signed: true } : { low: 0, high: maximum, signed: false };
}
