// Line chart that can be updated live; values by hover or arrow keys, and as a table.

import { tokenColour } from "/web/render/colour.js";
import { clamp, extent, formatCount, indices, sum, writeNumber } from "/web/render/numbers.js";
import { bdi, element, fill, table, tableDetails } from "./element.js";
import { downloadButtons } from "./download.js";

const DASHES = ["none", "7 4", "2 4", "9 3 2 3", "12 5", "4 2"];
const [LEFT, TOP, RIGHT, BOTTOM, HEIGHT] = [52, 12, 14, 40, 280];
const DECADES = indices(19).flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** (power - 9)));
const MAX_POINTS = 500; // per line: a screen has no more pixels

export class LineChart {
	constructor({ title, xAxis, yAxis }) {
		this.title = title;
		this.xAxis = xAxis;
		this.yAxis = yAxis;
		this.lines = [];
		this.cursorX = null;
		this.svg = element("svg.curves", {
			height: HEIGHT,
			tabindex: 0,
			role: "application",
			"aria-roledescription": "chart",
			"data-arrows": "",
			onpointermove: ({ clientX }) => this.showValues(this.xOfPixel(clientX - this.svg.getBoundingClientRect().left)),
			onpointerleave: () => this.showValues(null),
			onkeydown: (event) => this.onKeyDown(event),
		});
		this.status = element("p.read.quiet", { role: "status" });
		this.legend = element("ul.legend");
		this.logarithmic = element("input", { type: "checkbox", onchange: () => this.draw() });
		this.tableDetails = tableDetails(element("div"));
		this.tableDetails.addEventListener("toggle", () => this.fillTable());
		this.element = element(
			"figure.chart",
			element("figcaption", title, element("label.quiet", this.logarithmic, " logarithmic")),
			this.legend,
			this.svg,
			this.status,
			this.tableDetails,
			downloadButtons(
				title.toLowerCase(),
				() => this.svg,
				() => [
					["curve", xAxis, yAxis],
					...this.lines.flatMap(({ name, points }) => points.map((point) => [name, ...point])),
				],
			),
		);
		new ResizeObserver(() => this.draw()).observe(this.element);
	}

	/** Each of the `lines` has a name and points, which are pairs [x, y]. */
	show(lines) {
		this.lines = lines.map((line) => ({
			...line,
			points: line.points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y)),
		}));
		fill(
			this.legend,
			this.lines.map(({ name }, index) => element("li", legendSample(index), bdi(name))),
		);
		const last = (points) => (points.length ? writeNumber(points.at(-1)[1]) : "no data yet");
		const ends = this.lines.map(({ name, points }) => `${name} ${last(points)}`).join(", ");
		this.svg.setAttribute("aria-label", `${this.title}: ${ends}. Arrow keys read the values.`);
		this.draw();
		this.fillTable();
	}

	/** The table is only filled when it is open. */
	fillTable() {
		if (!this.tableDetails.open) return;
		const rows = this.lines.flatMap(({ name, points }) =>
			downsample(points, 100).map(([x, y]) => [name, formatCount(x), writeNumber(y)]),
		);
		this.tableDetails.lastElementChild.replaceWith(table(this.title, ["curve", this.xAxis, this.yAxis], rows));
	}

	draw() {
		const width = Math.floor(this.element.clientWidth);
		if (!width) return;
		const points = this.lines.flatMap((line) => line.points);
		const transform = this.logarithmic.checked ? (y) => Math.log10(Math.max(y, 1e-9)) : (y) => y;
		const [xRange, yRange] = [paddedRange(points.map(([x]) => x)), paddedRange(points.map(([, y]) => transform(y)))];
		this.x = (value) => LEFT + ((value - xRange[0]) / (xRange[1] - xRange[0])) * (width - LEFT - RIGHT);
		this.y = (value) => TOP + ((yRange[1] - transform(value)) / (yRange[1] - yRange[0])) * (HEIGHT - TOP - BOTTOM);
		this.xOfPixel = (pixel) => xRange[0] + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (xRange[1] - xRange[0]);
		this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
		this.svg.setAttribute("width", width);
		this.cursor = element("g");
		fill(
			this.svg,
			this.drawAxes(xRange, yRange, width),
			this.lines.map((line, index) => this.drawLine(line, index)),
			this.cursor,
		);
		this.showValues(this.cursorX);
	}

	drawAxes(xRange, yRange, width) {
		const shapes = [];
		for (const tick of ticks(...xRange, width < 500 ? 4 : 7)) {
			shapes.push(
				element("path.rule", { d: `M${this.x(tick)} ${TOP}V${HEIGHT - BOTTOM}` }),
				label(this.x(tick), HEIGHT - BOTTOM + 16, writeTick(tick), "middle"),
			);
		}
		const yTicks = this.logarithmic.checked ? DECADES : ticks(...yRange, 5);
		for (const tick of yTicks.filter((y) => clamp(this.y(y), TOP, HEIGHT - BOTTOM) === this.y(y))) {
			shapes.push(
				element("path.rule", { d: `M${LEFT} ${this.y(tick)}H${width - RIGHT}` }),
				label(LEFT - 6, this.y(tick) + 4, writeTick(tick), "end"),
			);
		}
		const middle = TOP + (HEIGHT - TOP - BOTTOM) / 2;
		const yLabel = label(12, middle, this.yAxis, "middle");
		yLabel.setAttribute("transform", `rotate(-90 12 ${middle})`);
		return [...shapes, yLabel, label(LEFT + (width - LEFT - RIGHT) / 2, HEIGHT - 6, this.xAxis, "middle")];
	}

	drawLine({ points }, index) {
		if (points.length === 1) return this.drawPoint(points[0], index);
		const path = downsample(points, MAX_POINTS)
			.map(([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`)
			.join("L");
		return element("path.curve", { d: path ? `M${path}` : "", ...lineStyle(index) });
	}

	drawPoint([x, y], index) {
		const colours = { fill: tokenColour(index), stroke: "currentColor" };
		return element("circle", { cx: this.x(x), cy: this.y(y), r: 4.5, ...colours });
	}

	/** Show the values of all lines at x; null clears them. */
	showValues(x) {
		this.cursorX = x;
		const values =
			x === null
				? []
				: this.lines.flatMap(({ name, points }, index) =>
						points.length ? [{ name, index, point: nearestPoint(points, x) }] : [],
					);
		this.cursor?.replaceChildren(...values.map(({ index, point }) => this.drawPoint(point, index)));
		const readings = values.map(({ name, point }) => `${name} ${writeNumber(point[1])}`).join(" · ");
		this.status.textContent = values.length
			? `${this.xAxis} ${formatCount(values[0].point[0])}: ${readings}`
			: "Point at the lines, or use the arrow keys, to read their values.";
	}

	onKeyDown(event) {
		const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
		if (event.key === "Escape") this.showValues(null);
		if (step === undefined) return;
		const xs = [...new Set(this.lines.flatMap(({ points }) => downsample(points, 60).map(([x]) => x)))].sort(
			(a, b) => a - b,
		);
		if (!xs.length) return;
		const current = this.cursorX === null ? (step > 0 ? -1 : xs.length) : xs.findIndex((x) => x >= this.cursorX - 1e-9);
		this.showValues(xs[clamp(current + step, 0, xs.length - 1)]);
		event.preventDefault();
	}
}

function lineStyle(index) {
	return { stroke: tokenColour(index), "stroke-dasharray": DASHES[index % 6] };
}

function legendSample(index) {
	return element(
		"svg",
		{ width: 34, height: 10, "aria-hidden": "true" },
		element("path.curve", { d: "M1 5H33", ...lineStyle(index) }),
	);
}

function label(x, y, text, anchor) {
	return element("text", { x, y, "text-anchor": anchor }, text);
}

function nearestPoint(points, x) {
	return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

/** Downsample a line by the means of equal parts; the last point is kept. */
function downsample(points, maxPoints) {
	if (points.length <= maxPoints) return points;
	const size = points.length / maxPoints;
	const parts = indices(maxPoints).map((index) =>
		points.slice(Math.round(index * size), Math.round((index + 1) * size)),
	);
	return [
		...parts.slice(0, -1).map((part) => [part.at(-1)[0], sum(part.map(([, y]) => y)) / part.length]),
		points.at(-1),
	];
}

function paddedRange(values) {
	let [low, high] = extent(values);
	if (!values.length) [low, high] = [0, 1];
	if (high - low < 1e-12) [low, high] = [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
	const padding = (high - low) * 0.04;
	return [low >= 0 ? Math.max(low - padding, 0) : low - padding, high + padding];
}

function ticks(low, high, target) {
	const power = 10 ** Math.floor(Math.log10((high - low) / target));
	const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => (high - low) / candidate <= target);
	const first = Math.ceil(low / step - 1e-9);
	return indices(Math.floor(high / step + 1e-9) - first + 1).map((index) => (first + index) * step);
}

function writeTick(value) {
	return formatCount(Number(value.toPrecision(6)));
}
