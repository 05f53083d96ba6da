// Numbers as they travel: whole steps between two ends, deflated; the last code means "not there".

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
    at: (place) => (codes[place] === last ? NaN : packed.low + codes[place] * step),
  };
}

// Numbers in full: what is calculated with.
export async function unpackExactly(packed) {
  return new Float32Array(await inflate(packed.data));
}

function inflate(data) {
  if (Uint8Array.fromBase64) return unfold(Uint8Array.fromBase64(data));
  const signs = atob(data);
  const bytes = new Uint8Array(signs.length); // a plain loop: Uint8Array.from takes ten times as long
  for (let place = 0; place < signs.length; place++) bytes[place] = signs.charCodeAt(place);
  return unfold(bytes);
}

function unfold(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}

export function writeNumber(value, decimals) {
  if (Number.isNaN(value)) return "hidden";
  const written = value.toFixed(decimals);
  return Number(written) === 0 ? written.replace("-", "") : written;
}

// The smallest and largest of a stretch of numbers; around zero where there are both signs.
export function rangeOf(numbers, start, count) {
  let low = numbers.last;
  let high = -1;
  for (let place = start; place < start + count; place++) {
    const code = numbers.codes[place];
    if (code === numbers.last) continue;
    if (code < low) low = code;
    if (code > high) high = code;
  }
  if (high < 0) return { low: 0, high: 0, signed: false };
  return between(numbers.low + low * numbers.step, numbers.low + high * numbers.step);
}

// One range that holds all of these.
export function rangeOfAll(ranges) {
  return between(Math.min(...ranges.map((range) => range.low)), Math.max(...ranges.map((range) => range.high)));
}

function between(least, most) {
  const reach = Math.max(-least, most);
  return least < 0 ? { low: -reach, high: reach, signed: true } : { low: 0, high: most, signed: false };
}
