// Numbers as they travel: whole steps between two ends, deflated; the last code means "not there".

export async function unpackNumbers(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (sign) => sign.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(plain).arrayBuffer();
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
  const [least, most] = [numbers.low + low * numbers.step, numbers.low + high * numbers.step];
  const reach = Math.max(-least, most);
  return least < 0 ? { low: -reach, high: reach, signed: true } : { low: 0, high: most, signed: false };
}
