// Colour-blind safe colour maps, with the same stops as render/palette.py.

import { clamp } from "./numbers.js";

const CIVIDIS = "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838";
const BLUE_ORANGE = "0b4a8f 3f78b5 86aed6 cbdcec f4f2ee f6d6b0 eaa65a cd7419 8f4700";
const CATEGORY_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
export const tokenColour = (index) => CATEGORY_COLOURS[index % CATEGORY_COLOURS.length];
const SHADES = 1024;
const ramps = new Map();

// Colour map as RGBA pixels; with `lifted`, small values get more of the colours (by the square root).
export function rampOf(signed, lifted) {
	const name = `${signed}${lifted}`;
	if (!ramps.has(name)) {
		const stops = (signed ? BLUE_ORANGE : CIVIDIS).split(" ").map(parseChannels);
		const shade = (_, index) => interpolatePixel(stops, index / (SHADES - 1), lifted && !signed);
		ramps.set(name, Uint32Array.from({ length: SHADES }, shade));
	}
	return ramps.get(name);
}

export function fractionOf(value, range) {
	return range.high > range.low ? clamp((value - range.low) / (range.high - range.low), 0, 1) : 0;
}

export function cssColour(ramp, fraction) {
	return `rgb(${channelsAt(ramp, fraction)})`;
}

// Text colour on a shade: black or white by relative luminance (WCAG).
export function textColourOn(ramp, fraction) {
	const [red, green, blue] = channelsAt(ramp, fraction).map((channel) => {
		const value = channel / 255;
		return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
	});
	return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

export function sizeCanvas(canvas, width, height, pixelRatio) {
	[canvas.width, canvas.height] = [Math.round(width * pixelRatio), Math.round(height * pixelRatio)];
	[canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
}

// Paint a map with one pixel per cell; masked cells are transparent.
export function paintMap(canvas, map) {
	const { rows, columns } = map;
	[canvas.width, canvas.height] = [columns, rows];
	const context = canvas.getContext("2d");
	const image = context.createImageData(columns, rows);
	paintCells(image, 0, 0, columns, rows, map);
	context.putImageData(image, 0, 0);
}

export function paintCells(image, left, top, width, height, { numbers, start, rows, columns, range, ramp }) {
	const pixels = new Uint32Array(image.data.buffer);
	const span = range.high > range.low ? range.high - range.low : 1;
	const factor = (numbers.step / span) * (SHADES - 1);
	const offset = ((numbers.low - range.low) / span) * (SHADES - 1) + 0.5;
	const { codes, last } = numbers;
	for (let y = 0; y < height; y++) {
		const rowStart = start + Math.floor((y * rows) / height) * columns;
		for (let x = 0, pixel = (top + y) * image.width + left; x < width; x++, pixel++) {
			const code = codes[rowStart + (((x * columns) / width) | 0)];
			if (code !== last) pixels[pixel] = ramp[Math.min(Math.max((code * factor + offset) | 0, 0), SHADES - 1)];
		}
	}
}

// Downsample a map by max pooling over squares of cells, so that thin lines stay visible.
export function shrinkMap(map, maxSide) {
	const { numbers, start, rows, columns, range } = map;
	const side = Math.ceil(Math.max(rows, columns) / maxSide);
	if (side <= 1) return map;
	const [height, width] = [Math.ceil(rows / side), Math.ceil(columns / side)];
	const { codes, last, low, step } = numbers;
	const pooled = new codes.constructor(height * width).fill(last);
	const zero = range.signed ? -low / step : 0;
	for (let row = 0, source = start; row < rows; row++) {
		const rowStart = Math.floor(row / side) * width;
		for (let column = 0; column < columns; column++, source++) {
			const target = rowStart + ((column / side) | 0);
			const code = codes[source];
			if (code === last) continue;
			if (pooled[target] === last || Math.abs(code - zero) > Math.abs(pooled[target] - zero)) pooled[target] = code;
		}
	}
	return { ...map, numbers: { ...numbers, codes: pooled }, start: 0, rows: height, columns: width };
}

function channelsAt(ramp, fraction) {
	const pixel = ramp[Math.round(fraction * (SHADES - 1))];
	return [pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255];
}

function parseChannels(stop) {
	return [0, 2, 4].map((start) => parseInt(stop.slice(start, start + 2), 16));
}

function interpolatePixel(stops, fraction, lifted) {
	const position = (lifted ? Math.sqrt(fraction) : fraction) * (stops.length - 1);
	const left = Math.min(Math.floor(position), stops.length - 2);
	const mix = (low, channel) => Math.round(low + (stops[left + 1][channel] - low) * (position - left));
	const [red, green, blue] = stops[left].map(mix);
	return (255 << 24) | (blue << 16) | (green << 8) | red;
}
