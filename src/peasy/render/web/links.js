// Words in two columns, joined by lines or ribbons as strong as their weight. Hovering or focusing a word leaves only
// its own links.

import { define, Figure, fill, make } from "./figure.js";
import { tokenColour } from "./colour.js";
import { clamp, unpackNumbers, writeNumber } from "./numbers.js";

const LINE_HEIGHT = 24;
const MAX_LINKS = 1500;

let measuringContext;

export function textWidth(text, weight = "normal") {
	measuringContext ??= document.createElement("canvas").getContext("2d");
	measuringContext.font = `${weight} 13px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif`;
	return measuringContext.measureText(text).width;
}

// `spec`: left, right (words), weight(left, right), minWeight, gold, ribbons, width. `onHighlight(side, index)` is
// called when a word is hovered or focused; with nulls when the pointer leaves.
export function drawLinks(spec, onHighlight) {
	const links = [];
	spec.left.forEach((_left, left) =>
		spec.right.forEach((_right, right) => {
			const weight = spec.weight(left, right);
			if (weight >= spec.minWeight) links.push([left, right, weight]);
		}),
	);
	links.sort((one, other) => other[2] - one[2]);
	/** @type {[any, any]} */
	const rows = [layOutRow(spec.left), layOutRow(spec.right)];
	const fits = Math.max(rows[0].width, rows[1].width) <= spec.width;
	return (spec.ribbons && fits ? drawRibbons : drawColumns)(spec, links.slice(0, MAX_LINKS), rows, onHighlight);
}

function drawColumns(spec, links, _, onHighlight) {
	const columnWidth = (words, axis) => Math.min(Math.max(...words.map(textWidth), textWidth(axis)), 170) + 10;
	const leftWidth = columnWidth(spec.left, spec.leftAxis);
	const rightWidth = columnWidth(spec.right, spec.rightAxis);
	const gap = clamp(spec.width - leftWidth - rightWidth, 80, 260);
	const height = 30 + LINE_HEIGHT * Math.max(spec.left.length, spec.right.length);
	const y = (index) => 34.5 + LINE_HEIGHT * index;
	const [start, middle, end] = [leftWidth, leftWidth + gap / 2, leftWidth + gap];
	const curve = (left, right) => `M${start} ${y(left)}C${middle} ${y(left)} ${middle} ${y(right)} ${end} ${y(right)}`;
	const lines = links.reverse().map(([left, right, weight]) =>
		make("path.line", {
			d: curve(left, right),
			"data-a": left,
			"data-b": right,
			"stroke-opacity": 0.15 + 0.85 * Math.min(weight, 1),
			"stroke-width": 0.8 + 4 * Math.min(weight, 1),
		}),
	);
	const gold = (spec.gold ?? []).map(([left, right]) => make("path.gold", { d: curve(left, right) }));
	const words = [
		...spec.left.map((word, index) => wordLabel(word, 0, index, start - 8, y(index) + 4.5, "end")),
		...spec.right.map((word, index) => wordLabel(word, 1, index, end + 8, y(index) + 4.5, "start")),
	];
	const axes = [axisLabel(spec.leftAxis, start - 8, "end"), axisLabel(spec.rightAxis, end + 8, "start")];
	return finishPicture(spec, end + rightWidth, height, [...lines, ...gold, ...axes, ...words], words, onHighlight);
}

function drawRibbons(spec, links, [topRow, bottomRow], onHighlight) {
	const [topEdge, bottomEdge] = [44, 170];
	const middle = (topEdge + bottomEdge) / 2;
	const [leftSums, rightSums] = [sumWeightsBy(links, 0), sumWeightsBy(links, 1)];
	const usedWidths = [new Map(), new Map()];
	const takeWidth = (side, index, width) => {
		const start = usedWidths[side].get(index) ?? 0;
		usedWidths[side].set(index, start + width);
		return start;
	};
	const byPosition = (one, other) => one[0] - other[0] || one[1] - other[1];
	const ribbons = links.sort(byPosition).map(([left, right, weight]) => {
		const topWidth = (topRow.words[left].width * weight) / Math.max(leftSums.get(left), 1);
		const bottomWidth = (bottomRow.words[right].width * weight) / Math.max(rightSums.get(right), 1);
		const top = topRow.words[left].x + takeWidth(0, left, topWidth);
		const bottom = bottomRow.words[right].x + takeWidth(1, right, bottomWidth);
		const [topEnd, bottomEnd] = [top + topWidth, bottom + bottomWidth];
		const d =
			`M${top} ${topEdge}C${top} ${middle} ${bottom} ${middle} ${bottom} ${bottomEdge}` +
			`H${bottomEnd}C${bottomEnd} ${middle} ${topEnd} ${middle} ${topEnd} ${topEdge}Z`;
		return make("path.ribbon", {
			d,
			"data-a": left,
			"data-b": right,
			fill: tokenColour(left),
			"fill-opacity": 0.3 + 0.6 * Math.min(weight, 1),
		});
	});
	const centre = (word) => word.x + word.width / 2;
	const gold = (spec.gold ?? []).map(([left, right]) =>
		make("path.gold", {
			d: `M${centre(topRow.words[left])} ${topEdge}L${centre(bottomRow.words[right])} ${bottomEdge}`,
		}),
	);
	const words = [
		...spec.left.map((word, index) => wordLabel(word, 0, index, centre(topRow.words[index]), topEdge - 8, "middle")),
		...spec.right.map((word, index) =>
			wordLabel(word, 1, index, centre(bottomRow.words[index]), bottomEdge + 18, "middle"),
		),
	];
	const axes = [axisLabel(spec.leftAxis, 0, "start"), make("text.axis", { x: 0, y: bottomEdge + 42 }, spec.rightAxis)];
	const width = Math.max(topRow.width, bottomRow.width);
	return finishPicture(spec, width, bottomEdge + 50, [...ribbons, ...gold, ...axes, ...words], words, onHighlight);
}

function finishPicture(spec, width, height, shapes, words, onHighlight) {
	const onPoint = (event) => {
		const word = event.target.closest?.("text[data-side]");
		if (word) onHighlight(Number(word.dataset.side), Number(word.dataset.index));
	};
	const attributes = {
		width,
		height,
		viewBox: `0 0 ${width} ${height}`,
		role: "group",
		"aria-label": spec.title,
		onpointerover: onPoint,
		onfocusin: onPoint,
		onpointerleave: () => onHighlight(null, null),
		onkeydown: (event) => moveBetweenWords(event, words, spec),
	};
	const svg = make("svg", attributes, shapes);
	const links = [...svg.querySelectorAll(".line, .ribbon")];
	const highlight = (side, index) => {
		for (const link of links) {
			const belongs = side === null || Number(side === 0 ? link.dataset.a : link.dataset.b) === index;
			link.classList.toggle("away", !belongs);
		}
		for (const word of words) {
			word.classList.toggle("held", Number(word.dataset.side) === side && Number(word.dataset.index) === index);
		}
	};
	words.forEach((word, index) => word.setAttribute("tabindex", index === 0 ? 0 : -1));
	return { svg, highlight };
}

function moveBetweenWords(event, words, spec) {
	const current = words.indexOf(event.target);
	const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
	if (current < 0 || !step) return;
	const changesSide = (event.key === "ArrowLeft" || event.key === "ArrowRight") !== Boolean(spec.ribbons);
	const [side, index] = [Number(words[current].dataset.side), Number(words[current].dataset.index)];
	const [sideCount, otherCount] =
		side === 0 ? [spec.left.length, spec.right.length] : [spec.right.length, spec.left.length];
	const target = changesSide
		? (side === 0 ? spec.left.length : 0) + Math.min(index, otherCount - 1)
		: (side === 0 ? 0 : spec.left.length) + clamp(index + step, 0, sideCount - 1);
	event.preventDefault();
	event.stopPropagation();
	words[current].setAttribute("tabindex", -1);
	words[target].setAttribute("tabindex", 0);
	words[target].focus();
}

function wordLabel(word, side, index, x, y, anchor) {
	return make("text", { x, y, "text-anchor": anchor, "data-side": side, "data-index": index }, word);
}

function axisLabel(text, x, anchor) {
	return make("text.axis", { x, y: 14, "text-anchor": anchor }, text);
}

function layOutRow(words) {
	let x = 0;
	const boxes = words.map((word) => {
		const box = { x, width: Math.max(textWidth(word), 18) };
		x += box.width + 16;
		return box;
	});
	return { words: boxes, width: Math.max(x - 16, 0) };
}

function sumWeightsBy(links, side) {
	const sums = new Map();
	for (const link of links) sums.set(link[side], (sums.get(link[side]) ?? 0) + link[2]);
	return sums;
}

class PeasyLinks extends Figure {
	async build(data) {
		this.numbers = await unpackNumbers(data.numbers);
		this.status = make("p.read", { role: "status" });
		this.words = make("div.words");
		const parts = [make("h3", data.title), this.words, this.status];
		if (data.description) parts.push(make("p.quiet", data.description));
		this.fillShadowRoot(make("div.frame", parts));
		this.repaint();
	}

	repaint() {
		const { data, numbers } = this;
		if (!numbers) return;
		const columns = data.right.length;
		const weight = (left, right) => numbers.at(left * columns + right);
		const spec = { ...data, weight, width: this.words.clientWidth || 600 };
		const picture = drawLinks(spec, (side, index) => {
			picture.highlight(side, index);
			this.status.textContent = side === null ? "" : this.describeWord(side, index, weight);
		});
		fill(this.words, picture.svg);
	}

	describeWord(side, index, weight) {
		const { left, right, decimals } = this.data;
		const partners =
			side === 0
				? right.map((word, other) => [word, weight(index, other)])
				: left.map((word, other) => [word, weight(other, index)]);
		const strongest = partners
			.filter(([, value]) => value > 0)
			.sort((one, other) => other[1] - one[1])
			.slice(0, 5);
		const listed = strongest.map(([word, value]) => `${word} ${writeNumber(value, decimals)}`).join(", ");
		return `${(side === 0 ? left : right)[index]} ${side === 0 ? "→" : "←"} ${listed}`;
	}
}

define("peasy-links", PeasyLinks);
