// Colours that colour-blind eyes can tell apart: the same stops as on paper (render/palette.py).

const CIVIDIS = "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838";
const BLUE_ORANGE = "0b4a8f 3f78b5 86aed6 cbdcec f4f2ee f6d6b0 eaa65a cd7419 8f4700";
export const KINDS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const SHADES = 1024;
const ramps = new Map();

// Colours as the four bytes of a pixel; with `lifted`, small numbers get more of the colours (by the square root).
export function rampOf(signed, lifted) {
  const name = `${signed}${lifted}`;
  if (!ramps.has(name)) {
    const stops = (signed ? BLUE_ORANGE : CIVIDIS).split(" ").map(channels);
    ramps.set(name, Uint32Array.from({ length: SHADES }, (_, place) => pixel(stops, place / (SHADES - 1), lifted && !signed)));
  }
  return ramps.get(name);
}

export function shareOf(value, range) {
  return range.high > range.low ? Math.min(Math.max((value - range.low) / (range.high - range.low), 0), 1) : 0;
}

export function cssColour(ramp, share) {
  const code = ramp[Math.round(share * (SHADES - 1))];
  return `rgb(${code & 255},${(code >> 8) & 255},${(code >> 16) & 255})`;
}

// Black or white, whichever reads better on that colour.
export function inkOn(ramp, share) {
  const code = ramp[Math.round(share * (SHADES - 1))];
  const [red, green, blue] = [code & 255, (code >> 8) & 255, (code >> 16) & 255].map((part) => {
    const c = part / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

// One pixel a cell; what is not there is see-through.
export function paintMap(canvas, numbers, start, rows, columns, range, ramp) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  paintCells(image, 0, 0, columns, rows, { numbers, start, rows, columns, range, ramp });
  context.putImageData(image, 0, 0);
}

// A map on a piece of a picture, `wide` by `tall` pixels from (left, top) on.
export function paintCells(image, left, top, wide, tall, { numbers, start, rows, columns, range, ramp }) {
  const pixels = new Uint32Array(image.data.buffer);
  const span = range.high > range.low ? range.high - range.low : 1;
  const factor = (numbers.step / span) * (SHADES - 1);
  const shift = ((numbers.low - range.low) / span) * (SHADES - 1) + 0.5;
  const { codes, last } = numbers;
  for (let y = 0; y < tall; y++) {
    const line = start + Math.floor((y * rows) / tall) * columns;
    for (let x = 0, at = (top + y) * image.width + left; x < wide; x++, at++) {
      const code = codes[line + (((x * columns) / wide) | 0)];
      if (code !== last) pixels[at] = ramp[Math.min(Math.max((code * factor + shift) | 0, 0), SHADES - 1)];
    }
  }
}

// A map of many cells made smaller: each is the strongest of a square of cells, so that thin lines stay visible.
export function shrinkMap(map, most) {
  const { numbers, start, rows, columns, range } = map;
  const side = Math.ceil(Math.max(rows, columns) / most);
  if (side <= 1) return map;
  const [height, width] = [Math.ceil(rows / side), Math.ceil(columns / side)];
  const { codes, last, low, step } = numbers;
  const small = new codes.constructor(height * width).fill(last);
  const zero = range.signed ? -low / step : 0;
  for (let row = 0, place = start; row < rows; row++) {
    const line = Math.floor(row / side) * width;
    for (let column = 0; column < columns; column++, place++) {
      const at = line + ((column / side) | 0);
      const code = codes[place];
      if (code !== last && (small[at] === last || Math.abs(code - zero) > Math.abs(small[at] - zero))) small[at] = code;
    }
  }
  return { ...map, numbers: { ...numbers, codes: small }, start: 0, rows: height, columns: width };
}

function channels(stop) {
  return [0, 2, 4].map((place) => parseInt(stop.slice(place, place + 2), 16));
}

function pixel(stops, share, lifted) {
  const place = (lifted ? Math.sqrt(share) : share) * (stops.length - 1);
  const left = Math.min(Math.floor(place), stops.length - 2);
  const [red, green, blue] = stops[left].map((low, channel) => Math.round(low + (stops[left + 1][channel] - low) * (place - left)));
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}
