// Words joined by lines as strong as their weight. Pointing at a word, or focusing it, leaves only its own lines.

import { Figure, define, make } from "./base.js";
import { KINDS } from "./colour.js";
import { unpackNumbers, writeNumber } from "./numbers.js";

const LINE_HEIGHT = 24;
const MOST_LINES = 1500;

let pen;

function widthOf(text) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = '13px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif';
  return pen.measureText(text).width;
}

// `spec`: left, right (words), weight(a, b), least, known, ribbons, width; `held(side, place)` hears what is pointed at.
export function drawLinks(spec, held) {
  const found = [];
  spec.left.forEach((_, a) => spec.right.forEach((_, b) => {
    const weight = spec.weight(a, b);
    if (weight >= spec.least) found.push([a, b, weight]);
  }));
  found.sort((one, other) => other[2] - one[2]);
  const rows = [spec.left, spec.right].map(sideBySide);
  const wide = Math.max(...rows.map((row) => row.width));
  return (spec.ribbons && wide <= spec.width ? ribbonPicture : columnPicture)(spec, found.slice(0, MOST_LINES), rows, held);
}

function columnPicture(spec, found, _, held) {
  const room = Math.min(Math.max(...spec.left.map(widthOf), widthOf(spec.leftAxis)), 170) + 10;
  const rightRoom = Math.min(Math.max(...spec.right.map(widthOf), widthOf(spec.rightAxis)), 170) + 10;
  const middle = Math.min(Math.max(spec.width - room - rightRoom, 80), 260);
  const height = 30 + LINE_HEIGHT * Math.max(spec.left.length, spec.right.length);
  const y = (place) => 34.5 + LINE_HEIGHT * place;
  const bow = (a, b) => `M${room} ${y(a)}C${room + middle / 2} ${y(a)} ${room + middle / 2} ${y(b)} ${room + middle} ${y(b)}`;
  const lines = found.reverse().map(([a, b, weight]) => make("path", {
    class: "line", d: bow(a, b), "data-a": a, "data-b": b,
    "stroke-opacity": 0.15 + 0.85 * Math.min(weight, 1), "stroke-width": 0.8 + 4 * Math.min(weight, 1),
  }));
  const known = (spec.known ?? []).map(([a, b]) => make("path", { class: "known", d: bow(a, b) }));
  const words = [
    ...spec.left.map((word, place) => wordAt(word, 0, place, room - 8, y(place) + 4.5, "end")),
    ...spec.right.map((word, place) => wordAt(word, 1, place, room + middle + 8, y(place) + 4.5, "start")),
  ];
  const axes = [axisAt(spec.leftAxis, room - 8, "end"), axisAt(spec.rightAxis, room + middle + 8, "start")];
  return finished(spec, room + middle + rightRoom, height, [...lines, ...known, ...axes, ...words], words, held);
}

function ribbonPicture(spec, found, [tops, bottoms], held) {
  const [above, below] = [44, 170];
  const [given, taken] = [sumsBy(found, 0), sumsBy(found, 1)];
  const used = [new Map(), new Map()];
  const take = (side, place, width) => {
    const start = used[side].get(place) ?? 0;
    used[side].set(place, start + width);
    return start;
  };
  const bands = found.sort((one, other) => one[0] - other[0] || one[1] - other[1]).map(([a, b, weight]) => {
    const wide = (tops.words[a].width * weight) / Math.max(given.get(a), 1);
    const thin = (bottoms.words[b].width * weight) / Math.max(taken.get(b), 1);
    const [x, z] = [tops.words[a].x + take(0, a, wide), bottoms.words[b].x + take(1, b, thin)];
    const middle = (above + below) / 2;
    const d = `M${x} ${above}C${x} ${middle} ${z} ${middle} ${z} ${below}H${z + thin}C${z + thin} ${middle} ${x + wide} ${middle} ${x + wide} ${above}Z`;
    return make("path", { class: "ribbon", d, "data-a": a, "data-b": b, fill: KINDS[a % 6], "fill-opacity": 0.3 + 0.6 * Math.min(weight, 1) });
  });
  const centre = (word) => word.x + word.width / 2;
  const known = (spec.known ?? []).map(([a, b]) =>
    make("path", { class: "known", d: `M${centre(tops.words[a])} ${above}L${centre(bottoms.words[b])} ${below}` }));
  const words = [
    ...spec.left.map((word, place) => wordAt(word, 0, place, centre(tops.words[place]), above - 8, "middle")),
    ...spec.right.map((word, place) => wordAt(word, 1, place, centre(bottoms.words[place]), below + 18, "middle")),
  ];
  const axes = [axisAt(spec.leftAxis, 0, "start"), make("text", { class: "axis", x: 0, y: below + 42 }, spec.rightAxis)];
  return finished(spec, Math.max(tops.width, bottoms.width), below + 50, [...bands, ...known, ...axes, ...words], words, held);
}

function finished(spec, width, height, drawn, words, held) {
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": spec.title }, ...drawn);
  const lines = [...svg.querySelectorAll(".line, .ribbon")];
  const hold = (side, place) => {
    for (const line of lines) {
      const own = side === null || Number(side === 0 ? line.dataset.a : line.dataset.b) === place;
      line.classList.toggle("away", !own);
    }
    for (const word of words) word.classList.toggle("held", Number(word.dataset.side) === side && Number(word.dataset.place) === place);
  };
  const hear = (event) => {
    const word = event.target.closest?.("text[data-side]");
    if (word) held(Number(word.dataset.side), Number(word.dataset.place));
  };
  svg.addEventListener("pointerover", hear);
  svg.addEventListener("focusin", hear);
  svg.addEventListener("pointerleave", () => held(null, null));
  svg.addEventListener("keydown", (event) => moveAmongWords(event, words, spec));
  words.forEach((word, place) => word.setAttribute("tabindex", place === 0 ? 0 : -1));
  return { svg, hold };
}

function moveAmongWords(event, words, spec) {
  const at = words.indexOf(event.target);
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (at < 0 || !step) return;
  const across = (event.key === "ArrowLeft" || event.key === "ArrowRight") !== Boolean(spec.ribbons);
  const [side, place] = [Number(words[at].dataset.side), Number(words[at].dataset.place)];
  const [sideCount, otherCount] = side === 0 ? [spec.left.length, spec.right.length] : [spec.right.length, spec.left.length];
  const target = across
    ? (side === 0 ? spec.left.length : 0) + Math.min(place, otherCount - 1)
    : (side === 0 ? 0 : spec.left.length) + Math.min(Math.max(place + step, 0), sideCount - 1);
  event.preventDefault();
  event.stopPropagation();
  words[at].setAttribute("tabindex", -1);
  words[target].setAttribute("tabindex", 0);
  words[target].focus();
}

function wordAt(word, side, place, x, y, anchor) {
  return make("text", { x, y, "text-anchor": anchor, "data-side": side, "data-place": place }, word);
}

function axisAt(text, x, anchor) {
  return make("text", { class: "axis", x, y: 14, "text-anchor": anchor }, text);
}

function sideBySide(words) {
  let x = 0;
  const laid = words.map((word) => {
    const width = Math.max(widthOf(word), 18);
    const at = { x, width };
    x += width + 16;
    return at;
  });
  return { words: laid, width: Math.max(x - 16, 0) };
}

function sumsBy(found, side) {
  const sums = new Map();
  for (const link of found) sums.set(link[side], (sums.get(link[side]) ?? 0) + link[2]);
  return sums;
}

class PeasyLinks extends Figure {
  async build(data) {
    this.numbers = await unpackNumbers(data.numbers);
    this.read = make("p", { class: "read", role: "status" });
    this.words = make("div", { class: "words" });
    const parts = [make("h3", {}, data.title), this.words, this.read];
    if (data.says) parts.push(make("p", { class: "quiet" }, data.says));
    this.open(make("div", { class: "frame" }, ...parts));
    this.repaint();
  }

  repaint() {
    const { data, numbers } = this;
    if (!numbers) return;
    const columns = data.right.length;
    const weight = (a, b) => numbers.at(a * columns + b);
    const spec = { ...data, weight, width: this.words.clientWidth || 600 };
    const picture = drawLinks(spec, (side, place) => {
      picture.hold(side, place);
      this.read.textContent = side === null ? "" : this.said(side, place, weight);
    });
    this.words.replaceChildren(picture.svg);
  }

  said(side, place, weight) {
    const { left, right, decimals } = this.data;
    const others = side === 0 ? right.map((word, b) => [word, weight(place, b)]) : left.map((word, a) => [word, weight(a, place)]);
    const best = others.filter(([, share]) => share > 0).sort((one, other) => other[1] - one[1]).slice(0, 5);
    const listed = best.map(([word, share]) => `${word} ${writeNumber(share, decimals)}`).join(", ");
    return `${(side === 0 ? left : right)[place]} ${side === 0 ? "→" : "←"} ${listed}`;
  }
}

define("peasy-links", PeasyLinks);
