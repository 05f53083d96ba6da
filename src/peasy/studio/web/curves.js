// Curves that may grow while one looks: read by pointing or with the arrow keys, and as a table.

import { KINDS } from "/web/render/colour.js";
import { asTable, element, table } from "./element.js";
import { files } from "./picture.js";

const DASHES = ["none", "7 4", "2 4", "9 3 2 3", "12 5", "4 2"];
const [LEFT, TOP, RIGHT, BOTTOM, HEIGHT] = [52, 12, 14, 40, 280];
const MOST = 500; // points of one line: a screen has no more dots

export class Curves {
  /** `write` says a number of the vertical axis, `writeX` one of the other. */
  constructor({ title, xAxis, yAxis, write = (y) => y.toFixed(4), writeX = (x) => Math.round(x).toLocaleString("en") }) {
    Object.assign(this, { title, xAxis, yAxis, write, writeX });
    this.lines = [];
    this.at = null;
    this.svg = element("svg", { class: "curves", height: HEIGHT, tabindex: 0, role: "application", "aria-roledescription": "chart", "data-arrows": "" });
    this.read = element("p", { class: "read quiet", role: "status" });
    this.legend = element("ul", { class: "legend" });
    this.log = false;
    const scale = element("input", { type: "checkbox", onchange: () => { this.log = scale.checked; this.draw(); } });
    const scaled = element("label", { class: "quiet scale" }, scale, " logarithmic");
    this.numbers = asTable(element("div", {}));
    this.numbers.addEventListener("toggle", () => this.list());
    this.element = element("figure", { class: "chart" }, element("figcaption", {}, title, scaled), this.legend, this.svg, this.read, this.numbers,
      files(title.toLowerCase(), () => this.svg, () => [["curve", xAxis, yAxis], ...this.lines.flatMap(({ name, points }) => points.map((point) => [name, ...point]))]));
    this.svg.addEventListener("pointermove", (event) => this.point(this.xAt(event)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** @param {Array<{name: string, points: Array<[number, number]>}>} lines */
  show(lines) {
    this.lines = lines.map((line) => ({ ...line, points: line.points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y)) }));
    this.legend.replaceChildren(...this.lines.map(({ name }, at) => element("li", {}, sample(at), element("bdi", {}, name))));
    this.svg.setAttribute("aria-label", `${this.title}: ${this.lines.map(({ name, points }) => `${name} ${points.length ? this.write(points.at(-1)[1]) : "nothing yet"}`).join(", ")}. Arrow keys read the curves.`);
    this.draw();
    this.list();
  }

  /** The table is only made for those who open it. */
  list() {
    if (!this.numbers.open) return;
    const rows = this.lines.flatMap(({ name, points }) => thinned(points, 100).map(([x, y]) => [name, this.writeX(x), this.write(y)]));
    this.numbers.lastElementChild.replaceWith(table(this.title, ["curve", this.xAxis, this.yAxis], rows));
  }

  draw() {
    const width = Math.floor(this.element.clientWidth);
    if (!width) return;
    const all = this.lines.flatMap(({ points }) => points);
    const lift = this.log ? (y) => Math.log10(Math.max(y, 1e-9)) : (y) => y;
    const [xs, ys] = [spanOf(all.map(([x]) => x)), spanOf(all.map(([, y]) => lift(y)))];
    this.x = (value) => LEFT + ((value - xs[0]) / (xs[1] - xs[0])) * (width - LEFT - RIGHT);
    this.y = (value) => TOP + ((ys[1] - lift(value)) / (ys[1] - ys[0])) * (HEIGHT - TOP - BOTTOM);
    this.back = (pixel) => xs[0] + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (xs[1] - xs[0]);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.setAttribute("width", width);
    this.cursor = element("g", {});
    this.svg.replaceChildren(...this.axes(xs, ys, width), ...this.lines.map((line, at) => this.line(line, at)), this.cursor);
    this.point(this.at);
  }

  axes(xs, ys, width) {
    const drawn = [];
    for (const tick of ticks(...xs, width < 500 ? 4 : 7)) {
      drawn.push(element("path", { class: "rule", d: `M${this.x(tick)} ${TOP}V${HEIGHT - BOTTOM}` }), label(this.x(tick), HEIGHT - BOTTOM + 16, shortly(tick), "middle"));
    }
    for (const tick of this.log ? decades(...ys) : ticks(...ys, 5)) {
      drawn.push(element("path", { class: "rule", d: `M${LEFT} ${this.y(tick)}H${width - RIGHT}` }), label(LEFT - 6, this.y(tick) + 4, shortly(tick), "end"));
    }
    const turned = label(12, TOP + (HEIGHT - TOP - BOTTOM) / 2, this.yAxis, "middle");
    turned.setAttribute("transform", `rotate(-90 12 ${TOP + (HEIGHT - TOP - BOTTOM) / 2})`);
    return [...drawn, turned, label(LEFT + (width - LEFT - RIGHT) / 2, HEIGHT - 6, this.xAxis, "middle")];
  }

  line({ points }, at) {
    if (points.length === 1) return element("circle", { cx: this.x(points[0][0]), cy: this.y(points[0][1]), r: 4, fill: KINDS[at % 6] });
    const path = thinned(points, MOST).map(([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("L");
    return element("path", { class: "curve", d: path ? `M${path}` : "", stroke: KINDS[at % 6], "stroke-dasharray": DASHES[at % 6] });
  }

  xAt(event) {
    const box = this.svg.getBoundingClientRect();
    return this.back(event.clientX - box.left);
  }

  /** What all curves say at one place. */
  point(x) {
    this.at = x;
    const found = x === null ? [] : this.lines.flatMap(({ name, points }, at) => (points.length ? [{ name, at, near: nearest(points, x) }] : []));
    this.cursor?.replaceChildren(...found.map(({ at, near }) => element("circle", { cx: this.x(near[0]), cy: this.y(near[1]), r: 4.5, fill: KINDS[at % 6], stroke: "currentColor" })));
    this.read.textContent = found.length
      ? `${this.xAxis} ${this.writeX(found[0].near[0])}: ${found.map(({ name, near }) => `${name} ${this.write(near[1])}`).join(" · ")}`
      : "Point at the curves, or move along them with the arrow keys, to read them.";
  }

  pressed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this.point(null);
    if (step === undefined) return;
    const xs = [...new Set(this.lines.flatMap(({ points }) => thinned(points, 60).map(([x]) => x)))].sort((a, b) => a - b);
    if (!xs.length) return;
    const now = this.at === null ? (step > 0 ? -1 : xs.length) : xs.findIndex((x) => x >= this.at - 1e-9);
    this.point(xs[Math.min(Math.max(now + step, 0), xs.length - 1)]);
    event.preventDefault();
  }
}

function sample(at) {
  return element("svg", { width: 34, height: 10, "aria-hidden": "true" }, element("path", { class: "curve", d: "M1 5H33", stroke: KINDS[at % 6], "stroke-dasharray": DASHES[at % 6] }));
}

function label(x, y, text, anchor) {
  return element("text", { x, y, "text-anchor": anchor }, text);
}

function nearest(points, x) {
  return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

/** A long line by the means of its parts; the last point stays as it is. */
function thinned(points, most) {
  if (points.length <= most) return points;
  const size = points.length / most;
  const parts = Array.from({ length: most }, (_, at) => points.slice(Math.round(at * size), Math.round((at + 1) * size)));
  return [...parts.slice(0, -1).map((part) => [part.at(-1)[0], part.reduce((sum, [, y]) => sum + y, 0) / part.length]), points.at(-1)];
}

function spanOf(values) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (!values.length) [low, high] = [0, 1];
  if (high - low < 1e-12) [low, high] = [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
  const air = (high - low) * 0.04;
  return [low >= 0 ? Math.max(low - air, 0) : low - air, high + air];
}

function ticks(low, high, about) {
  const power = 10 ** Math.floor(Math.log10((high - low) / about));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => (high - low) / each <= about);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, at) => (first + at) * step);
}

/** 1, 2 and 5 of every power of ten between two logarithms. */
function decades(low, high) {
  const powers = Array.from({ length: Math.floor(high) - Math.floor(low) + 1 }, (_, at) => 10 ** (Math.floor(low) + at));
  return powers.flatMap((power) => [power, 2 * power, 5 * power]).filter((tick) => Math.log10(tick) >= low && Math.log10(tick) <= high);
}

function shortly(value) {
  return Number(value.toPrecision(6)).toLocaleString("en");
}
