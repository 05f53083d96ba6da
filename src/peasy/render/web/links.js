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
	const sides = [spec.left, spec.right];
	const rows = sides.map(layOutRow);
	const fits = Math.max(rows[0].width, rows[1].width) <= spec.width;
	const layOut = spec.ribbons && fits ? layOutRibbons : layOutColumns;
	const { width, height, shapes, gold, wordAt, axisAt } = layOut(spec, links.slice(0, MAX_LINKS), rows);
	const label = (text, at, attributes) =>
		make("text", { x: at[0], y: at[1], "text-anchor": at[2], ...attributes }, text);
	const words = sides.flatMap((side, at) =>
		side.map((word, index) =>
			label(word, wordAt(at, index), { "data-side": at, "data-index": index, tabindex: at || index ? -1 : 0 }),
		),
	);
	const onPoint = (event) => {
		const word = event.target.closest?.("text[data-side]");
		if (word) onHighlight(Number(word.dataset.side), Number(word.dataset.index));
	};
	const svg = make(
		"svg",
		{
			width,
			height,
			viewBox: `0 0 ${width} ${height}`,
			role: "group",
			"aria-label": spec.title,
			onpointerover: onPoint,
			onfocusin: onPoint,
			onpointerleave: () => onHighlight(null, null),
			onkeydown: (event) => moveBetweenWords(event, words, spec),
		},
		shapes,
		spec.gold?.map((pair) => make("path.gold", { d: gold(...pair) })),
		[spec.leftAxis, spec.rightAxis].map((text, side) => label(text, axisAt(side), { class: "axis" })),
		words,
	);
	const highlight = (side, index) => {
		for (const link of shapes) {
			const belongs = side === null || Number(side === 0 ? link.dataset.a : link.dataset.b) === index;
			link.classList.toggle("away", !belongs);
		}
		for (const word of words) {
			word.classList.toggle("held", Number(word.dataset.side) === side && Number(word.dataset.index) === index);
		}
	};
	return { svg, highlight };
}

function layOutColumns(spec, links) {
	const columnWidth = (words, axis) => Math.min(Math.max(...[...words, axis].map((word) => textWidth(word))), 170) + 10;
	const start = columnWidth(spec.left, spec.leftAxis);
	const rightWidth = columnWidth(spec.right, spec.rightAxis);
	const end = start + clamp(spec.width - start - rightWidth, 80, 260);
	const middle = (start + end) / 2;
	const y = (index) => 34.5 + LINE_HEIGHT * index;
	const curve = (left, right) => `M${start} ${y(left)}C${middle} ${y(left)} ${middle} ${y(right)} ${end} ${y(right)}`;
	const textAt = (side, height) => (side ? [end + 8, height, "start"] : [start - 8, height, "end"]);
	return {
		width: end + rightWidth,
		height: 30 + LINE_HEIGHT * Math.max(spec.left.length, spec.right.length),
		shapes: links.reverse().map(([left, right, weight]) =>
			make("path.line", {
				d: curve(left, right),
				"data-a": left,
				"data-b": right,
				"stroke-opacity": 0.15 + 0.85 * Math.min(weight, 1),
				"stroke-width": 0.8 + 4 * Math.min(weight, 1),
			}),
		),
		gold: curve,
		wordAt: (side, index) => textAt(side, y(index) + 4.5),
		axisAt: (side) => textAt(side, 14),
	};
}

function layOutRibbons(_spec, links, rows) {
	const edges = [44, 170];
	const [topEdge, bottomEdge] = edges;
	const middle = (topEdge + bottomEdge) / 2;
	const sums = [0, 1].map((side) => sumWeightsBy(links, side));
	const used = [new Map(), new Map()];
	const byPosition = (one, other) => one[0] - other[0] || one[1] - other[1];
	const shapes = links.sort(byPosition).map((link) => {
		const [left, right, weight] = link;
		const [[top, topEnd], [bottom, bottomEnd]] = rows.map(({ words }, side) => {
			const index = link[side];
			const start = words[index].x + (used[side].get(index) ?? 0);
			const width = (words[index].width * weight) / Math.max(sums[side].get(index), 1);
			used[side].set(index, (used[side].get(index) ?? 0) + width);
			return [start, start + width];
		});
		const d =
			`M${top} ${topEdge}C${top} ${middle} ${bottom} ${middle} ${bottom} ${bottomEdge}` +
			`H${bottomEnd}C${bottomEnd} ${middle} ${topEnd} ${middle} ${topEnd} ${topEdge}Z`;
		const strength = { fill: tokenColour(left), "fill-opacity": 0.3 + 0.6 * Math.min(weight, 1) };
		return make("path.ribbon", { d, "data-a": left, "data-b": right, ...strength });
	});
	const centre = (side, index) => rows[side].words[index].x + rows[side].words[index].width / 2;
	return {
		width: Math.max(rows[0].width, rows[1].width),
		height: bottomEdge + 50,
		shapes,
		gold: (left, right) => `M${centre(0, left)} ${topEdge}L${centre(1, right)} ${bottomEdge}`,
		wordAt: (side, index) => [centre(side, index), edges[side] + (side ? 18 : -8), "middle"],
		axisAt: (side) => [0, side ? bottomEdge + 42 : 14, "start"],
	};
}

function moveBetweenWords(event, words, spec) {
	const current = words.indexOf(event.target);
	const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
	if (current < 0 || !step) return;
	const changesSide = (event.key === "ArrowLeft" || event.key === "ArrowRight") !== Boolean(spec.ribbons);
	const [side, index] = [Number(words[current].dataset.side), Number(words[current].dataset.index)];
	const counts = [spec.left.length, spec.right.length];
	const to = changesSide ? 1 - side : side;
	const target = (to && counts[0]) + clamp(changesSide ? index : index + step, 0, counts[to] - 1);
	event.preventDefault();
	event.stopPropagation();
	words[current].setAttribute("tabindex", -1);
	words[target].setAttribute("tabindex", 0);
	words[target].focus();
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
		const strongest = (side === 0 ? right : left)
			.map((word, other) => [word, side === 0 ? weight(index, other) : weight(other, index)])
			.filter(([, value]) => value > 0)
			.sort((one, other) => other[1] - one[1])
			.slice(0, 5);
		const listed = strongest.map(([word, value]) => `${word} ${writeNumber(value, decimals)}`).join(", ");
		return `${(side === 0 ? left : right)[index]} ${side === 0 ? "→" : "←"} ${listed}`;
	}
}

define("peasy-links", PeasyLinks);
