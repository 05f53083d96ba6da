// Grid of attention heat maps: thumbnails of all, one large, its tokens with links or shaded text, numbers on hover.

import { button, define, Figure, fill, make, makeSelect } from "./figure.js";
import { ARROW_MOVES } from "./moves.js";
import { paintCells, rampOf, shrinkMap, sizeCanvas } from "./colour.js";
import { HeatMap } from "./heatmap.js";
import { drawLinks } from "./links.js";
import {
	clamp,
	colourRange,
	formatCount,
	indices,
	rangeOf,
	unpackFloats,
	unpackIntegers,
	unpackNumbers,
	writeNumber,
} from "./numbers.js";
import { explainCell } from "./weight.js";

const COLOUR_SCALES = ["range of each map", "range of each map, small numbers lifted", "one range for all maps"];
const [LIFTED, SHARED_RANGE] = [1, 2];
const [LINKS_VIEW, TEXT_VIEW] = [0, 1];
const MAX_LINKED_WORDS = 64;
const TEXT_WINDOW = 240;
const CELL_HINT = "Click a cell, or press Enter, to see how its number is calculated; Escape closes it.";
const KEYS_HINT = "Keys: arrows move in the map, [ and ] change the";

class PeasyMaps extends Figure {
	numMapRows = 0;
	numMapColumns = 0;
	rows = 0;
	columns = 0;
	row = 0;
	column = 0;
	// set by a page that shows the arithmetic itself
	explain = null;

	async build(data) {
		this.numbers = await unpackNumbers(data.numbers);
		this.exactRows = data.exact ? await unpackNumbers(data.exact.numbers) : null;
		this.top = data.top && {
			count: data.top.count,
			keys: await unpackIntegers(data.top.keys),
			values: await unpackFloats({ data: data.top.values }),
		};
		this.vectors = data.vectors && {
			query: await unpackFloats(data.vectors.query),
			key: await unpackFloats(data.vectors.key),
		};
		[this.numMapRows, this.numMapColumns, this.rows, this.columns] = data.numbers.shape;
		this.mapSize = this.rows * this.columns;
		[this.mapRow, this.mapColumn] = data.chosen;
		this.colourScale = Math.max(this.rows, this.columns) > MAX_LINKED_WORDS ? LIFTED : 0;
		this.wordView =
			data.tileSize === 1 && Math.max(this.rows, this.columns) <= MAX_LINKED_WORDS ? LINKS_VIEW : TEXT_VIEW;
		this.several = this.numMapRows * this.numMapColumns > 1;
		const maps = indices(this.numMapRows * this.numMapColumns);
		this.ranges = maps.map((index) => rangeOf(this.numbers, index * this.mapSize, this.mapSize));
		this.sharedRange = colourRange(this.ranges.flatMap(({ low, high }) => [low, high]));
		// at first the last query with exact weights, and the key it attends to most
		const { tileSize, exact } = data;
		this.row = tileSize > 1 && exact?.positions.length ? Math.floor(exact.positions.at(-1) / tileSize) : this.rows - 1;
		this.column = this.strongestKey(this.row);
		this.buildLayout(data);
		this.repaint();
	}

	strongestKey(row) {
		if (this.top && this.data.tileSize === 1) return this.top.keys[(this.mapIndex * this.rows + row) * this.top.count];
		const values = indices(this.columns).map((column) => this.valueAt(row, column));
		return values.reduce(
			(best, value, column) => (value > values[best] || Number.isNaN(values[best]) ? column : best),
			0,
		);
	}

	buildLayout(data) {
		const starts = (names) =>
			indices(Math.ceil(names.length / data.tileSize)).map((index) => String(index * data.tileSize));
		const labels = (names) => (data.tileSize === 1 ? names : starts(names));
		this.heatMap = new HeatMap(this, labels(data.rows), labels(data.columns));
		this.status = make("p.read", { role: "status" });
		this.arithmetic = make("div.sum", { role: "status", hidden: "" });
		this.topList = make("ol.top");
		this.words = make("div.words");
		this.heatMap.canvas.addEventListener("pointermove", (event) => {
			const cell = this.heatMap.cellAt(event);
			if (cell && (cell[0] !== this.row || cell[1] !== this.column)) this.selectCell(...cell);
		});
		this.heatMap.canvas.addEventListener("click", () => {
			this.showArithmetic();
			this.emitSelection();
		});
		const { several } = this;
		this.mapContainer = make("div.large", this.heatMap.canvas);
		this.topListTitle = make("p");
		const main = make("div.main", this.mapContainer, this.status, this.arithmetic);
		const best = make("div.best", this.topListTitle, this.topList);
		const columns = several
			? [
					[this.makeOverview(data), best],
					[main, this.words],
				]
			: [[main], [best, this.words]];
		const groups = columns.map((parts) => make("div.side-by-side", parts));
		const body = make("div", { class: several ? "body" : "body one" }, groups);
		const keysHint = several ? `${KEYS_HINT} ${data.downAxis}, comma and full stop the ${data.acrossAxis}.` : "";
		const notes = [data.description, this.precisionNote(data), this.canExplain ? CELL_HINT : "", keysHint];
		const quiet = notes.filter(Boolean).map((sentence) => make("p.quiet", sentence));
		this.fillShadowRoot(make("div.frame", make("h3", data.title), this.makeToolbar(data), body, quiet));
		this.onkeydown = (event) => this.onKeyDown(event);
	}

	precisionNote({ tileSize, reduction }) {
		const tiled = tileSize > 1 ? `Each cell is the ${reduction} of ${tileSize} by ${tileSize} tokens. ` : "";
		return `${tiled}Numbers are stored to within ${Number(this.numbers.error.toPrecision(2))}.`;
	}

	makeToolbar(data) {
		const bar = make("div.bar");
		this.mapSelects = [];
		for (const [axis, names, chosen, onChange] of [
			[data.downAxis, data.down, this.mapRow, (index) => this.selectMap(index, this.mapColumn)],
			[data.acrossAxis, data.across, this.mapColumn, (index) => this.selectMap(this.mapRow, index)],
		]) {
			const label = makeSelect(axis, names, chosen, onChange);
			this.mapSelects.push(label.querySelector("select"));
			if (names.length > 1) bar.append(label);
		}
		const scales = this.several ? COLOUR_SCALES : COLOUR_SCALES.slice(0, SHARED_RANGE);
		bar.append(
			makeSelect("colours", scales, this.colourScale, (index) => {
				this.colourScale = index;
				this.repaint();
			}),
		);
		if (data.tileSize === 1) {
			bar.append(
				makeSelect("words", ["lines", "text"], this.wordView, (index) => {
					this.wordView = index;
					this.drawWords();
				}),
			);
		}
		return bar;
	}

	makeOverview(data) {
		this.thumbnailCanvas = make("canvas", { "aria-hidden": true });
		const grid = make("div.overview", {
			role: "group",
			"aria-label": `${data.title}: ${data.downAxis} by ${data.acrossAxis}`,
			onkeydown: (event) => this.onOverviewKeyDown(event),
		});
		const isLine = this.numMapRows === 1;
		grid.classList.toggle("line", isLine);
		grid.style.gridTemplateColumns = isLine
			? "repeat(auto-fill, minmax(84px, 1fr))"
			: `auto repeat(${this.numMapColumns}, minmax(24px, 110px))`;
		const names = data.across.map((name) => make("span", name));
		const buttons = data.down.map((downName, mapRow) =>
			data.across.map((acrossName, mapColumn) => {
				const title = `${data.downAxis} ${downName}, ${data.acrossAxis} ${acrossName}`;
				return button("", () => this.selectMap(mapRow, mapColumn), { class: null, "aria-label": title, title });
			}),
		);
		this.thumbnails = buttons.flat();
		const rows = data.down.map((name, mapRow) => [make("span.side", name), buttons[mapRow]]);
		fill(
			grid,
			make("span.axes", `${isLine ? "" : `${data.downAxis} ↓ `}${data.acrossAxis} →`),
			isLine ? buttons[0].map((one, index) => make("div", one, names[index])) : [make("span"), names, rows],
			this.thumbnailCanvas,
		);
		return grid;
	}

	get mapIndex() {
		return this.mapRow * this.numMapColumns + this.mapColumn;
	}

	valueAt(row, column) {
		return this.numbers.at(this.mapIndex * this.mapSize + row * this.columns + column);
	}

	mapAt(index) {
		const range = this.colourScale === SHARED_RANGE ? this.sharedRange : this.ranges[index];
		return {
			numbers: this.numbers,
			start: index * this.mapSize,
			rows: this.rows,
			columns: this.columns,
			range,
			ramp: rampOf(range.signed, this.colourScale === LIFTED),
			decimals: this.data.decimals,
		};
	}

	repaint() {
		if (!this.heatMap) return;
		this.availableWidth = this.mapContainer.clientWidth || 560; // measured before painting: one layout, not one per map
		if (this.thumbnails) this.paintOverview();
		this.redraw();
	}

	// Paint all thumbnails on one canvas over their buttons: a hundred canvases would take longer than their cells.
	paintOverview() {
		const { thumbnailCanvas: canvas, thumbnails } = this;
		sizeCanvas(canvas, 1, 1, 1); // a canvas of the previous width would keep the grid from shrinking
		const pixelRatio = window.devicePixelRatio || 1;
		const [width, height] = [canvas.parentElement.scrollWidth, canvas.parentElement.scrollHeight];
		const boxes = thumbnails.map(({ offsetLeft, offsetTop, clientLeft, clientWidth, clientHeight }) =>
			[offsetLeft + clientLeft, offsetTop + clientLeft, clientWidth, clientHeight].map((size) =>
				Math.round(size * pixelRatio),
			),
		);
		if (!boxes[0][2]) return; // inside a closed <details>, or not in the page yet
		sizeCanvas(canvas, width, height, pixelRatio);
		const context = canvas.getContext("2d");
		const image = context.createImageData(canvas.width, canvas.height);
		boxes.forEach((box, index) => {
			paintCells(image, ...box, shrinkMap(this.mapAt(index), box[2]));
		});
		context.putImageData(image, 0, 0);
	}

	redraw() {
		this.heatMap.show(this.mapAt(this.mapIndex), this.availableWidth);
		this.thumbnails?.forEach((thumbnail, index) => {
			const chosen = index === this.mapIndex;
			thumbnail.setAttribute("aria-pressed", chosen);
			thumbnail.tabIndex = chosen ? 0 : -1;
		});
		[this.mapSelects[0].selectedIndex, this.mapSelects[1].selectedIndex] = [this.mapRow, this.mapColumn];
		const label = `${this.mapName()}, ${this.rows} by ${this.columns}. Arrow keys move from cell to cell.`;
		this.heatMap.canvas.setAttribute("aria-label", label);
		this.drawWords();
		this.selectCell(this.row, this.column);
	}

	mapName() {
		const { downAxis, acrossAxis, down, across, title } = this.data;
		const pairs = [
			[downAxis, down[this.mapRow]],
			[acrossAxis, across[this.mapColumn]],
		].filter(([, name]) => name !== "");
		return pairs.map((pair) => pair.join(" ").trim()).join(", ") || title;
	}

	selectMap(mapRow, mapColumn) {
		this.mapRow = clamp(mapRow, 0, this.numMapRows - 1);
		this.mapColumn = clamp(mapColumn, 0, this.numMapColumns - 1);
		this.redraw();
		if (!this.arithmetic.hidden) this.showArithmetic();
		this.emitSelection();
	}

	emitSelection() {
		this.emitSelect({ mapRow: this.mapRow, mapColumn: this.mapColumn, row: this.row, column: this.column });
	}

	// Show how the number of the selected cell is calculated, below the map, or lead to where the page shows it.
	showArithmetic() {
		if (this.row < 0 || this.column < 0 || !this.canExplain) return;
		const [title, ...lines] = explainCell(this);
		const shown = this.explain ? button("How it is calculated", this.explain) : lines.map((line) => make("pre", line));
		fill(this.arithmetic, make("strong", title), shown);
		this.arithmetic.hidden = false;
	}

	// Only attention weights have an arithmetic; other maps have just their numbers.
	get canExplain() {
		return Boolean(this.data.vectors || this.data.command || this.data.rowAxis === "query");
	}

	selectCell(row, column) {
		[this.row, this.column] = [row, column];
		this.heatMap.draw(row, column);
		if (row < 0) return;
		fill(this.status, this.describeCell(row, column));
		this.listTopKeys(row);
		this.linksPicture?.highlight(0, row);
		if (this.wordView === TEXT_VIEW) this.shadeText();
	}

	describeCell(row, column) {
		const { rowAxis, columnAxis, decimals } = this.data;
		const words = [`${this.mapName()}: ${rowAxis} `, boldLabel(this.labelOf(this.data.rows, row))];
		if (column < 0) return words;
		const value = this.valueAt(row, column);
		return [
			...words,
			` → ${columnAxis} `,
			boldLabel(this.labelOf(this.data.columns, column)),
			": ",
			boldLabel(writeNumber(value, decimals)),
		];
	}

	labelOf(names, index) {
		const { tileSize } = this.data;
		if (tileSize === 1) return names[index] ?? String(index);
		return `${index * tileSize}–${Math.min((index + 1) * tileSize, names.length) - 1} ${names[index * tileSize]}…`;
	}

	// All weights of one query: from the map, or from a row stored exactly; null if the tile has no such row.
	rowWeights(row) {
		const { tileSize, exact, columns } = this.data;
		if (tileSize === 1) {
			const storedRow = this.mapIndex * this.rows + row;
			return { position: row, at: (key) => this.valueAt(row, key), count: this.columns, storedRow };
		}
		const index = exact?.positions.findIndex((position) => Math.floor(position / tileSize) === row) ?? -1;
		if (index < 0) return null;
		const storedRow = this.mapIndex * exact.positions.length + index;
		const at = (key) => this.exactRows.at(storedRow * columns.length + key);
		return { position: exact.positions[index], at, count: columns.length, storedRow };
	}

	// The keys of a row with the largest numbers, largest first: as stored, or else from the quantized numbers.
	topKeys({ at, count, storedRow }) {
		const { top } = this;
		const pairs = top
			? indices(top.count).map((rank) => [top.keys, top.values].map((array) => array[storedRow * top.count + rank]))
			: indices(count)
					.map((key) => [key, at(key)])
					.sort((one, other) => Math.abs(other[1]) - Math.abs(one[1]));
		return pairs.filter(([, value]) => Math.abs(value) > 0).slice(0, 8);
	}

	listTopKeys(row) {
		const weights = this.rowWeights(row);
		fill(this.topList);
		if (!weights) return fill(this.topListTitle, this.missingRowNote());
		const { position } = weights;
		const query = boldLabel(this.data.rows[position] ?? position);
		fill(this.topListTitle, `${this.data.rowAxis} `, query, ` (position ${position}), largest first:`);
		const largest = this.topKeys(weights);
		const maximum = Math.abs(largest[0]?.[1] ?? 1);
		return fill(
			this.topList,
			largest.map(([key, value]) => {
				const bar = make("i");
				bar.style.width = `${(100 * Math.abs(value)) / maximum}%`;
				return make(
					"li",
					make("bdi", this.data.columns[key] ?? key),
					bar,
					make("span", writeNumber(value, this.data.top?.decimals ?? this.data.decimals)),
				);
			}),
		);
	}

	missingRowNote() {
		const positions = this.data.exact?.positions ?? [];
		if (!positions.length) return "No row of this text is stored exactly: request some rows to see them here.";
		const listed = positions.slice(0, 12).join(", ") + (positions.length > 12 ? ", …" : "");
		return `No row of this tile is stored exactly. Stored: ${listed}.`;
	}

	drawWords() {
		this.linksPicture = null;
		if (this.wordView === TEXT_VIEW) return this.drawText();
		const { rows, columns, rowAxis, columnAxis } = this.data;
		const weight = (row, column) => this.valueAt(row, column);
		const spec = {
			left: rows,
			right: columns,
			leftAxis: rowAxis,
			rightAxis: columnAxis,
			weight,
			minWeight: 0.02,
			title: `${this.mapName()}: words and lines`,
			width: this.words.clientWidth || 480,
		};
		const tooMany = Math.max(rows.length, columns.length) > 2 * MAX_LINKED_WORDS;
		if (tooMany) return fill(this.words, make("p.quiet", "Too many words for lines: choose text."));
		this.linksPicture = drawLinks(spec, (side, index) => {
			if (side === 0) this.selectCell(index, this.column);
			else if (side === 1) this.linksPicture.highlight(1, index);
			else this.linksPicture.highlight(0, this.row);
		});
		fill(this.words, this.linksPicture.svg);
		return undefined;
	}

	// A window of the text, each token shaded by how much the selected query attends to it.
	drawText() {
		const weights = this.rowWeights(Math.max(this.row, 0));
		const names = this.data.columns;
		const start = Math.max(0, Math.min(this.focusedKey(weights) - TEXT_WINDOW / 2, names.length - TEXT_WINDOW));
		this.windowStart = start;
		this.tokenSpans = names
			.slice(start, start + TEXT_WINDOW)
			.map((name, index) => make("span", { "data-key": start + index }, name));
		const listeners = {
			onpointerover: ({ target }) => this.selectKey(target.dataset.key),
			onclick: ({ target }) => this.selectQuery(target.dataset.key),
		};
		const spans = this.tokenSpans.flatMap((span) => [span, make("wbr")]);
		const text = make("p.text", listeners, spans);
		const shown = `Shown: tokens ${start} to ${start + this.tokenSpans.length - 1} of ${formatCount(names.length)}.`;
		const notice = names.length > TEXT_WINDOW ? [make("p.quiet", shown)] : [];
		fill(this.words, text, notice);
		this.shadeText(weights);
	}

	focusedKey(weights) {
		if (this.column >= 0) return this.column * this.data.tileSize;
		return weights ? weights.position : 0;
	}

	shadeText(givenWeights) {
		const weights = givenWeights ?? this.rowWeights(Math.max(this.row, 0));
		const focused = this.focusedKey(weights);
		const outside = focused < this.windowStart || focused >= this.windowStart + this.tokenSpans.length;
		if (givenWeights === undefined && outside) return this.drawText();
		const larger = (largest, key) => Math.max(largest, Math.abs(weights.at(key)) || 0);
		const maximum = indices(weights?.count ?? 0).reduce(larger, 0) || 1;
		for (const [index, span] of this.tokenSpans.entries()) {
			const key = this.windowStart + index;
			const value = weights ? weights.at(key) : NaN;
			const percent = Number.isNaN(value) ? 0 : Math.round((45 * Math.abs(value)) / maximum);
			const colour = value < 0 ? "--figure-mark" : "--figure-accent";
			span.style.background = percent ? `color-mix(in srgb, var(${colour}) ${percent}%, transparent)` : "";
			span.classList.toggle("query", this.data.selfAttention && weights?.position === key);
			span.classList.toggle("key", Math.floor(key / this.data.tileSize) === this.column);
		}
		return undefined;
	}

	selectKey(key) {
		if (key !== undefined) this.selectCell(Math.max(this.row, 0), Math.floor(Number(key) / this.data.tileSize));
	}

	selectQuery(key) {
		if (key !== undefined && this.data.selfAttention)
			this.selectCell(Math.floor(Number(key) / this.data.tileSize), this.column);
	}

	moveSelection(rows, columns) {
		this.selectCell(clamp(this.row + rows, 0, this.rows - 1), clamp(this.column + columns, 0, this.columns - 1));
		if (!this.arithmetic.hidden) this.showArithmetic();
		if (this.data.tileSize === 1) this.emitSelection();
	}

	onOverviewKeyDown(event) {
		const move = ARROW_MOVES[event.key];
		if (!move) return;
		event.preventDefault();
		event.stopPropagation();
		this.selectMap(this.mapRow + move[0], this.mapColumn + move[1]);
		this.thumbnails[this.mapIndex].focus();
	}

	onKeyDown(event) {
		const onSelect = event.composedPath()[0].tagName === "SELECT";
		if (event.ctrlKey || event.metaKey || event.altKey || onSelect) return;
		const mapMove = { "[": [-1, 0], "]": [1, 0], ",": [0, -1], ".": [0, 1] }[event.key];
		const move = ARROW_MOVES[event.key];
		const onMap = event.composedPath()[0] === this.heatMap.canvas;
		if (mapMove) this.selectMap(this.mapRow + mapMove[0], this.mapColumn + mapMove[1]);
		else if (move && onMap) this.moveSelection(...move);
		else if (event.key === "Enter" && onMap) this.showArithmetic();
		else if (event.key === "Escape" && !this.arithmetic.hidden) this.arithmetic.hidden = true;
		else return;
		event.preventDefault();
	}
}

function boldLabel(text) {
	return make("b", make("bdi", text));
}

define("peasy-maps", PeasyMaps);
