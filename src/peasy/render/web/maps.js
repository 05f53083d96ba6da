// Heat maps on a grid: all of them small, one large, its words with lines or as a text, and every number by pointing.

import { Figure, chooser, define, make } from "./base.js";
import { explainWeight } from "./cell.js";
import { Chart } from "./chart.js";
import { paintCells, rampOf, shrinkMap } from "./colour.js";
import { drawLinks } from "./links.js";
import { rangeOf, rangeOfAll, unpackExactly, unpackNumbers, writeNumber } from "./numbers.js";

const SCALES = ["each map's own range", "own range, small numbers lifted", "one range for all"];
const MOST_WORDS = 64;
const WINDOW = 240;
const OPENS = "A click on a cell, or Enter, opens how its number came about; Escape closes it.";
const KEYS = "Keys: arrows move in the map, [ and ] change the";

class PeasyMaps extends Figure {
  async build(data) {
    this.numbers = await unpackNumbers(data.numbers);
    this.exact = data.exact ? await unpackNumbers(data.exact.numbers) : null;
    this.vectors = data.vectors && { query: await unpackExactly(data.vectors.query), key: await unpackExactly(data.vectors.key) };
    [this.downs, this.acrosses, this.rows, this.columns] = data.numbers.shape;
    this.size = this.rows * this.columns;
    [this.down, this.across] = data.chosen;
    this.scale = 0;
    this.view = data.tile === 1 && Math.max(this.rows, this.columns) <= MOST_WORDS ? 0 : 1;
    this.ranges = Array.from({ length: this.downs * this.acrosses }, (_, place) => rangeOf(this.numbers, place * this.size, this.size));
    this.whole = rangeOfAll(this.ranges);
    [this.row, this.column] = this.firstCell();
    this.furnish(data);
    this.repaint();
  }

  // A first cell, so that there is something to read: the last query that was kept, and what it looks at most.
  firstCell() {
    const { tile, exact } = this.data;
    const row = tile > 1 && exact?.places.length ? Math.floor(exact.places.at(-1) / tile) : this.rows - 1;
    const first = this.mapAt(this.down, this.across).start + row * this.columns;
    let column = 0;
    for (let place = 1; place < this.columns; place++) {
      if (!(this.numbers.at(first + place) <= this.numbers.at(first + column)) && !Number.isNaN(this.numbers.at(first + place))) column = place;
    }
    return [row, column];
  }

  furnish(data) {
    const labels = (names) => (data.tile === 1 ? names : startsOf(names, data.tile));
    this.chart = new Chart(this, labels(data.rows), labels(data.columns));
    this.read = make("p", { class: "read", role: "status" });
    this.sum = make("div", { class: "sum", role: "status", hidden: "" });
    this.top = make("ol", { class: "top" });
    this.words = make("div", { class: "words" });
    this.listen(this.chart.canvas);
    const several = this.downs * this.acrosses > 1;
    this.large = make("div", { class: "large" }, this.chart.canvas);
    this.asked = make("p", {});
    const [main, best] = [make("div", { class: "main" }, this.large, this.read, this.sum), make("div", { class: "best" }, this.asked, this.top)];
    const columns = several ? [[this.overview(data), best], [main, this.words]] : [[main], [best, this.words]];
    const body = make("div", { class: several ? "body" : "body one" }, ...columns.map((parts) => make("div", { class: "side-by-side" }, ...parts)));
    const said = [data.says, this.stated(data), this.opens ? OPENS : "", several ? `${KEYS} ${data.downAxis}, comma and full stop the ${data.acrossAxis}.` : ""];
    const quiet = said.filter(Boolean).map((sentence) => make("p", { class: "quiet" }, sentence));
    this.open(make("div", { class: "frame" }, make("h3", {}, data.title), this.bar(data, several), body, ...quiet));
    this.onkeydown = (event) => this.pressed(event);
  }

  stated(data) {
    const tiled = data.tile > 1 ? `Each cell is the ${data.reduced} of ${data.tile} by ${data.tile} tokens. ` : "";
    return `${tiled}Numbers are stored to within ${Number(this.numbers.error.toPrecision(2))}.`;
  }

  bar(data, several) {
    const bar = make("div", { class: "bar" });
    this.choosers = [];
    for (const [axis, names, set] of [
      [data.downAxis, data.down, (place) => this.choose(place, this.across)],
      [data.acrossAxis, data.across, (place) => this.choose(this.down, place)],
    ]) {
      const label = chooser(axis, names, axis === data.downAxis ? this.down : this.across, set);
      this.choosers.push(label.querySelector("select"));
      if (names.length > 1) bar.append(label);
    }
    bar.append(chooser("colours", several ? SCALES : SCALES.slice(0, 2), 0, (place) => { this.scale = place; this.repaint(); }));
    if (data.tile === 1) {
      bar.append(chooser("words", ["lines", "text"], this.view, (place) => { this.view = place; this.drawWords(); }));
    }
    return bar;
  }

  overview(data) {
    this.thumbs = [];
    this.sheet = make("canvas", { "aria-hidden": true });
    const grid = make("div", { class: "overview", role: "group", "aria-label": `${data.title}: ${data.downAxis} by ${data.acrossAxis}` });
    grid.addEventListener("keydown", (event) => this.movedInOverview(event));
    this.fillOverview(grid, data);
    grid.append(this.sheet);
    return grid;
  }

  fillOverview(grid, data) {
    if (this.downs === 1) return this.inOneLine(grid, data);
    grid.style.gridTemplateColumns = `auto repeat(${this.acrosses}, minmax(24px, 110px))`;
    grid.append(make("span", { class: "axes" }, `${data.downAxis} ↓ ${data.acrossAxis} →`), make("span", { class: "side" }));
    data.across.forEach((name) => grid.append(make("span", {}, name)));
    data.down.forEach((name, down) => {
      grid.append(make("span", { class: "side" }, name), ...data.across.map((_, across) => this.thumb(data, down, across)));
    });
    return undefined;
  }

  inOneLine(grid, data) {
    grid.classList.add("line");
    grid.style.gridTemplateColumns = "repeat(auto-fill, minmax(84px, 1fr))";
    grid.append(make("span", { class: "axes" }, `${data.acrossAxis} →`));
    data.across.forEach((name, across) => grid.append(make("div", {}, this.thumb(data, 0, across), make("span", {}, name))));
  }

  thumb(data, down, across) {
    const called = `${data.downAxis} ${data.down[down]}, ${data.acrossAxis} ${data.across[across]}`;
    const button = make("button", { type: "button", "aria-label": called, title: called, onclick: () => this.choose(down, across) });
    this.thumbs.push(button);
    return button;
  }

  mapAt(down, across) {
    const place = down * this.acrosses + across;
    const range = this.scale === 2 ? this.whole : this.ranges[place];
    return {
      numbers: this.numbers, start: place * this.size, rows: this.rows, columns: this.columns,
      range, ramp: rampOf(range.signed, this.scale === 1), decimals: this.data.decimals,
    };
  }

  repaint() {
    if (!this.chart) return;
    this.room = this.large.clientWidth || 560; // sizes are asked for before anything is painted: once, not once a map
    if (this.thumbs) this.paintOverview();
    this.redraw();
  }

  // All small maps on one sheet that lies over their buttons: a hundred canvases would take longer than their cells.
  paintOverview() {
    const { sheet, thumbs } = this;
    [sheet.width, sheet.height] = [1, 1]; // a sheet of an earlier width would keep its grid from shrinking
    [sheet.style.width, sheet.style.height] = ["1px", "1px"];
    const fine = window.devicePixelRatio || 1;
    const [width, height] = [sheet.parentElement.scrollWidth, sheet.parentElement.scrollHeight];
    const boxes = thumbs.map(({ offsetLeft, offsetTop, clientLeft, clientWidth, clientHeight }) =>
      [offsetLeft + clientLeft, offsetTop + clientLeft, clientWidth, clientHeight].map((size) => Math.round(size * fine)));
    if (!boxes[0][2]) return; // folded away or not in the page yet
    [sheet.width, sheet.height] = [Math.round(width * fine), Math.round(height * fine)];
    [sheet.style.width, sheet.style.height] = [`${width}px`, `${height}px`];
    const context = sheet.getContext("2d");
    const image = context.createImageData(sheet.width, sheet.height);
    boxes.forEach((box, place) => {
      const map = this.mapAt(Math.floor(place / this.acrosses), place % this.acrosses);
      paintCells(image, ...box, shrinkMap(map, box[2]));
    });
    context.putImageData(image, 0, 0);
  }

  redraw() {
    this.chart.show(this.mapAt(this.down, this.across), this.room);
    this.thumbs?.forEach((button, place) => {
      const chosen = place === this.down * this.acrosses + this.across;
      button.setAttribute("aria-pressed", chosen);
      button.tabIndex = chosen ? 0 : -1;
    });
    [this.choosers[0].selectedIndex, this.choosers[1].selectedIndex] = [this.down, this.across];
    this.chart.canvas.setAttribute("aria-label", `${this.nameOf()}, ${this.rows} by ${this.columns}. Arrows move from cell to cell.`);
    this.drawWords();
    this.point(this.row, this.column);
  }

  nameOf() {
    const { downAxis, acrossAxis, down, across, title } = this.data;
    const said = [[downAxis, down[this.down]], [acrossAxis, across[this.across]]].filter(([, name]) => name !== "");
    return said.map((pair) => pair.join(" ").trim()).join(", ") || title;
  }

  choose(down, across) {
    this.down = Math.min(Math.max(down, 0), this.downs - 1);
    this.across = Math.min(Math.max(across, 0), this.acrosses - 1);
    this.redraw();
    if (!this.sum.hidden) this.openCell();
    this.tell({ down: this.down, across: this.across, row: this.row, column: this.column });
  }

  // How the number of the chosen cell came about, below the map.
  openCell() {
    if (this.row < 0 || this.column < 0 || !this.opens) return;
    const [title, ...lines] = this.explained();
    this.sum.replaceChildren(make("strong", {}, title), ...lines.map((line) => make("pre", {}, line)));
    this.sum.hidden = false;
  }

  closeCell() {
    this.sum.hidden = true;
  }

  // Weights of queries and keys have an arithmetic; other maps say all there is by their numbers.
  get opens() {
    return Boolean(this.data.vectors || this.data.command || this.data.rowAxis === "query");
  }

  explained() {
    const { row, column, data, vectors } = this;
    const map = this.mapAt(this.down, this.across);
    const at = (key) => this.numbers.at(map.start + row * this.columns + key);
    const title = `${this.nameOf()}: ${this.called(data.rows, row)} → ${this.called(data.columns, column)}`;
    if (data.tile > 1) return [title, `The ${data.reduced} of up to ${data.tile * data.tile} weights.`, ...this.elsewhere()];
    if (Number.isNaN(at(column))) return [title, "Hidden: from here this key may not be looked at, so it weighs nothing."];
    if (!vectors) return [title, ...this.elsewhere()];
    const width = data.vectors.query.shape.at(-1);
    const place = this.down * this.acrosses + this.across;
    const vector = (all, index) => [...all.subarray(index * width, (index + 1) * width)];
    const seen = Array.from({ length: this.columns }, (_, key) => key).filter((key) => !Number.isNaN(at(key)));
    const keys = Array.from({ length: this.columns }, (_, key) => vector(vectors.key, place * this.columns + key));
    const query = vector(vectors.query, place * this.rows + row);
    const { lines, weight } = explainWeight({ query, keys, seen, at: column, decimals: 4, scale: data.vectors.scale, softcap: data.vectors.softcap });
    const apart = Math.abs(weight - at(column)) > 2e-3 + this.numbers.error;
    return [title, ...lines, ...(apart ? [`The model's own weight is ${writeNumber(at(column), data.decimals)}: it adds more here (a bias by distance, or an edit), which this page does not carry.`] : [])];
  }

  // What to ask for where the page carries no queries and keys.
  elsewhere() {
    const { command, rows, down, across, tile } = this.data;
    if (!command) return ['This page carries no queries and keys. In Python they come with: look(..., steps=("weights", "query", "key"))'];
    const word = (rows[this.row * tile] ?? "").replaceAll("·", "").replaceAll("'", "'\\''");
    return ["The whole calculation, with queries and keys:", `${command} --layer ${down[this.down]} --head ${across[this.across]} --query '${word}' --steps`];
  }

  // The cell that is spoken about: from the pointer, from the keys, from a word.
  point(row, column) {
    [this.row, this.column] = [row, column];
    this.chart.draw(row, column);
    if (row < 0) return;
    this.read.replaceChildren(...this.said(row, column));
    this.listTop(row);
    this.picture?.hold(0, row);
    if (this.view === 1) this.shadeText();
  }

  said(row, column) {
    const { rowAxis, columnAxis, decimals } = this.data;
    const bold = (text) => make("b", {}, make("bdi", {}, text));
    const words = [`${this.nameOf()}: ${rowAxis} `, bold(this.called(this.data.rows, row))];
    if (column < 0) return words;
    const value = this.numbers.at(this.mapAt(this.down, this.across).start + row * this.columns + column);
    return [...words, ` → ${columnAxis} `, bold(this.called(this.data.columns, column)), ": ", bold(writeNumber(value, decimals))];
  }

  called(names, place) {
    const { tile } = this.data;
    if (tile === 1) return names[place] ?? String(place);
    return `${place * tile}–${Math.min((place + 1) * tile, names.length) - 1} ${names[place * tile]}…`;
  }

  // All numbers of one query: of the map itself, or of a row that was kept in full.
  weightsOf(row) {
    const { tile, exact, columns } = this.data;
    if (tile === 1) {
      const start = this.mapAt(this.down, this.across).start + row * this.columns;
      return { place: row, at: (key) => this.numbers.at(start + key), count: this.columns };
    }
    const kept = exact?.places.findIndex((place) => Math.floor(place / tile) === row) ?? -1;
    if (kept < 0) return null;
    const start = ((this.down * this.acrosses + this.across) * exact.places.length + kept) * columns.length;
    return { place: exact.places[kept], at: (key) => this.exact.at(start + key), count: columns.length };
  }

  listTop(row) {
    const found = this.weightsOf(row);
    this.asked.replaceChildren(...(found ? this.question(found) : [this.missing()]));
    if (!found) return this.top.replaceChildren();
    const all = Array.from({ length: found.count }, (_, key) => [key, found.at(key)]).filter(([, value]) => Math.abs(value) > 0);
    const best = all.sort((one, other) => Math.abs(other[1]) - Math.abs(one[1])).slice(0, 8);
    const most = Math.abs(best[0]?.[1] ?? 1);
    return this.top.replaceChildren(...best.map(([key, value]) => {
      const bar = make("i");
      bar.style.width = `${(100 * Math.abs(value)) / most}%`;
      return make("li", {}, make("bdi", {}, this.data.columns[key] ?? key), bar, make("span", {}, writeNumber(value, this.data.decimals)));
    }));
  }

  question(found) {
    const word = make("b", {}, make("bdi", {}, this.data.rows[found.place] ?? String(found.place)));
    return [`${this.data.rowAxis} `, word, ` (place ${found.place}), largest first:`];
  }

  missing() {
    const places = this.data.exact?.places ?? [];
    if (!places.length) return "No row of this text was kept in full: ask for some to see them here.";
    const listed = places.slice(0, 12).join(", ") + (places.length > 12 ? ", …" : "");
    return `No row of this tile was kept in full. Kept: ${listed}.`;
  }

  drawWords() {
    this.picture = null;
    if (this.view === 1) return this.drawText();
    const { rows, columns, rowAxis, columnAxis } = this.data;
    const start = this.mapAt(this.down, this.across).start;
    const weight = (a, b) => this.numbers.at(start + a * this.columns + b);
    const spec = {
      left: rows, right: columns, leftAxis: rowAxis, rightAxis: columnAxis, weight, least: 0.02,
      title: `${this.nameOf()}: words and lines`, width: this.words.clientWidth || 480,
    };
    const several = Math.max(rows.length, columns.length) > 2 * MOST_WORDS;
    if (several) return this.words.replaceChildren(make("p", { class: "quiet" }, "Too many words for lines: choose text."));
    this.picture = drawLinks(spec, (side, place) => {
      if (side === 0) this.point(place, this.column);
      else if (side === 1) this.picture.hold(1, place);
      else this.picture.hold(0, this.row);
    });
    this.words.replaceChildren(this.picture.svg);
    return undefined;
  }

  // A window of the text, each word shaded by how much the chosen query looks at it.
  drawText() {
    const found = this.weightsOf(Math.max(this.row, 0));
    const names = this.data.columns;
    const middle = this.seenKey(found);
    const first = Math.max(0, Math.min(middle - WINDOW / 2, names.length - WINDOW));
    this.from = first;
    this.spans = names.slice(first, first + WINDOW).map((name, place) => make("span", { "data-key": first + place }, name));
    const text = make("p", { class: "text" }, ...this.spans.flatMap((span) => [span, make("wbr")]));
    text.addEventListener("pointerover", (event) => this.pointKey(event.target.dataset.key));
    text.addEventListener("click", (event) => this.askFrom(event.target.dataset.key));
    const notice = names.length > WINDOW ? [make("p", { class: "quiet" }, `Shown: tokens ${first} to ${first + this.spans.length - 1} of ${names.length.toLocaleString("en")}.`)] : [];
    this.words.replaceChildren(text, ...notice);
    this.shadeText(found);
  }

  seenKey(found) {
    if (this.column >= 0) return this.column * this.data.tile;
    return found ? found.place : 0;
  }

  shadeText(given) {
    const found = given ?? this.weightsOf(Math.max(this.row, 0));
    const wanted = this.seenKey(found);
    if (given === undefined && (wanted < this.from || wanted >= this.from + this.spans.length)) return this.drawText();
    const most = found ? this.most(found) : 1;
    for (const [place, span] of this.spans.entries()) {
      const key = this.from + place;
      const value = found ? found.at(key) : NaN;
      const share = Number.isNaN(value) ? 0 : Math.round((45 * Math.abs(value)) / most);
      span.style.background = share ? `color-mix(in srgb, var(${value < 0 ? "--m" : "--l"}) ${share}%, transparent)` : "";
      span.classList.toggle("asks", this.data.own && found?.place === key);
      span.classList.toggle("seen", Math.floor(key / this.data.tile) === this.column);
    }
    return undefined;
  }

  most(found) {
    let most = 0;
    for (let key = 0; key < found.count; key++) most = Math.max(most, Math.abs(found.at(key)) || 0);
    return most || 1;
  }

  pointKey(key) {
    if (key !== undefined) this.point(Math.max(this.row, 0), Math.floor(Number(key) / this.data.tile));
  }

  askFrom(key) {
    if (key !== undefined && this.data.own) this.point(Math.floor(Number(key) / this.data.tile), this.column);
  }

  listen(canvas) {
    canvas.addEventListener("pointermove", (event) => {
      const found = this.chart.cellAt(event);
      if (found && (found[0] !== this.row || found[1] !== this.column)) this.point(...found);
    });
    canvas.addEventListener("click", () => {
      this.openCell();
      this.tell({ down: this.down, across: this.across, row: this.row, column: this.column });
    });
  }

  step(rows, columns) {
    const row = Math.min(Math.max(this.row + rows, 0), this.rows - 1);
    this.point(row, Math.min(Math.max(this.column + columns, 0), this.columns - 1));
    if (!this.sum.hidden) this.openCell();
  }

  movedInOverview(event) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(this.down + move[0], this.across + move[1]);
    this.thumbs[this.down * this.acrosses + this.across].focus();
  }

  pressed(event) {
    const onSelect = event.composedPath()[0].tagName === "SELECT";
    if (event.ctrlKey || event.metaKey || event.altKey || onSelect) return;
    const turn = { "[": [-1, 0], "]": [1, 0], ",": [0, -1], ".": [0, 1] }[event.key];
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const onMap = event.composedPath()[0] === this.chart.canvas;
    if (turn) this.choose(this.down + turn[0], this.across + turn[1]);
    else if (move && onMap) this.step(...move);
    else if (event.key === "Enter" && onMap) this.openCell();
    else if (event.key === "Escape" && !this.sum.hidden) this.closeCell();
    else return;
    event.preventDefault();
  }
}

function startsOf(names, tile) {
  return Array.from({ length: Math.ceil(names.length / tile) }, (_, place) => String(place * tile));
}

define("peasy-maps", PeasyMaps);
