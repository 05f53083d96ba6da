// Large heat map on a canvas: cells, token labels, numbers where they fit, legend and the selected cell.

import { make } from "./figure.js";
import { cssColour, fractionOf, paintMap, sizeCanvas, textColourOn } from "./colour.js";
import { writeNumber } from "./numbers.js";

const FONT = '12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif';
const SMALL_FONT = '11px system-ui,"Noto Sans",sans-serif';
const LABEL_ANGLE = -0.84;

export class HeatMap {
	constructor(host, rowLabels, columnLabels) {
		this.host = host;
		this.canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "heat map" });
		this.cellCanvas = document.createElement("canvas");
		this.rowLabels = rowLabels;
		this.columnLabels = columnLabels;
	}

	// `map`: numbers, start, rows, columns, range, ramp, decimals.
	show(map, availableWidth) {
		this.map = map;
		paintMap(this.cellCanvas, map);
		const { rows, columns } = map;
		const context = this.canvas.getContext("2d");
		context.font = FONT;
		const maxWidth = (labels) =>
			labels.reduce((widest, label) => Math.max(widest, context.measureText(label).width), 0);
		this.left = Math.min(maxWidth(this.rowLabels.slice(0, 400)) * 1.1, Math.max(availableWidth * 0.22, 56)) + 10;
		const labelLength = Math.min(maxWidth(this.columnLabels.slice(0, 400)) * 1.1, 110);
		const overhang = Math.round(labelLength * Math.cos(LABEL_ANGLE)) + 6;
		const fittingSize = (availableWidth - this.left - overhang - 8) / columns;
		this.cellSize = Math.max(Math.min(fittingSize, 46, Math.max(640, availableWidth * 0.7) / Math.max(rows, 1)), 0.5);
		this.horizontalLabels = this.cellSize >= 11 && maxWidth(this.columnLabels) <= this.cellSize - 4;
		this.top = this.horizontalLabels ? 22 : Math.round(labelLength * Math.sin(-LABEL_ANGLE)) + 14;
		const width = this.left + this.cellSize * columns + (this.horizontalLabels ? 6 : overhang);
		const height = this.top + this.cellSize * rows + 30;
		this.pixelRatio = Math.min(window.devicePixelRatio || 1, 2);
		sizeCanvas(this.canvas, width, height, this.pixelRatio);
	}

	draw(row, column) {
		const { map, canvas, cellSize, left, top, pixelRatio } = this;
		const context = canvas.getContext("2d");
		this.inkColour = getComputedStyle(this.host).color;
		this.softColour = getComputedStyle(canvas).color;
		context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
		context.clearRect(0, 0, canvas.width, canvas.height);
		context.imageSmoothingEnabled = cellSize < 1;
		context.drawImage(this.cellCanvas, left, top, cellSize * map.columns, cellSize * map.rows);
		context.strokeStyle = this.softColour;
		context.lineWidth = 0.5;
		context.strokeRect(left, top, cellSize * map.columns, cellSize * map.rows);
		this.drawNumbers(context);
		this.drawLabels(context, row, column);
		this.drawLegend(context);
		if (row >= 0) this.drawSelection(context, row, column);
	}

	drawNumbers(context) {
		const { map, cellSize, left, top } = this;
		if (cellSize < 36) return;
		context.font = SMALL_FONT;
		[context.textAlign, context.textBaseline] = ["center", "middle"];
		for (let row = 0; row < map.rows; row++) {
			for (let column = 0; column < map.columns; column++) {
				const value = map.numbers.at(map.start + row * map.columns + column);
				const isMasked = Number.isNaN(value);
				context.fillStyle = isMasked ? this.softColour : textColourOn(map.ramp, fractionOf(value, map.range));
				context.fillText(
					isMasked ? "–" : writeNumber(value, 2),
					left + cellSize * (column + 0.5),
					top + cellSize * (row + 0.5),
				);
			}
		}
	}

	drawLabels(context, row, column) {
		const { cellSize, left, top, horizontalLabels } = this;
		context.textBaseline = "middle";
		// Draw every n-th label, so that they do not overlap, and always the selected one.
		const drawAxis = (labels, count, selected, spacing, maxWidth, paint) => {
			const skip = Math.max(1, Math.ceil(spacing / cellSize));
			for (let index = 0; index < count; index++) {
				if (index !== selected && (index % skip || (selected >= 0 && Math.abs(index - selected) < skip))) continue;
				context.fillStyle = index === selected ? this.inkColour : this.softColour;
				context.font = index === selected ? `bold ${FONT}` : FONT;
				paint(truncateText(context, labels[index] ?? String(index), maxWidth), cellSize * (index + 0.5));
			}
		};
		context.textAlign = "right";
		drawAxis(this.rowLabels, this.map.rows, row, 14, left - 8, (text, y) => context.fillText(text, left - 6, top + y));
		context.textAlign = horizontalLabels ? "center" : "left";
		drawAxis(this.columnLabels, this.map.columns, column, horizontalLabels ? 14 : 19, 110, (text, x) => {
			context.save();
			context.translate(left + x, top - 6);
			if (!horizontalLabels) context.rotate(LABEL_ANGLE);
			context.fillText(text, 0, horizontalLabels ? -4 : 0);
			context.restore();
		});
	}

	drawLegend(context) {
		const { map, left, top, cellSize } = this;
		const y = top + cellSize * map.rows + 10;
		const width = Math.min(160, Math.max(cellSize * map.columns - 70, 60));
		for (let x = 0; x < width; x++) {
			context.fillStyle = cssColour(map.ramp, x / width);
			context.fillRect(left + 30 + x, y, 1.5, 9);
		}
		context.font = SMALL_FONT;
		context.fillStyle = this.softColour;
		context.textBaseline = "middle";
		context.textAlign = "right";
		context.fillText(writeNumber(map.range.low, map.range.signed ? 2 : 0), left + 26, y + 5);
		context.textAlign = "left";
		const high = writeNumber(map.range.high, Math.min(map.decimals, 3));
		context.fillText(map.range.clipped ? `≥ ${high}` : high, left + 34 + width, y + 5);
	}

	drawSelection(context, row, column) {
		const { cellSize, left, top, map } = this;
		const frame = (colour, lineWidth, ...box) => {
			[context.strokeStyle, context.lineWidth] = [colour, lineWidth];
			context.strokeRect(...box);
		};
		frame(this.inkColour, 1, left, top + cellSize * row, cellSize * map.columns, cellSize);
		if (column < 0) return;
		const size = Math.max(cellSize, 5);
		const [x, y] = [left + cellSize * (column + 0.5) - size / 2, top + cellSize * (row + 0.5) - size / 2];
		frame("#000", 3, x, y, size, size);
		frame("#fff", 1.5, x, y, size, size);
	}

	// Cell under the pointer; row labels count as their row.
	cellAt(event) {
		const box = this.canvas.getBoundingClientRect();
		const row = Math.floor((event.clientY - box.top - this.top) / this.cellSize);
		const column = Math.floor((event.clientX - box.left - this.left) / this.cellSize);
		const inside = row < this.map.rows && column < this.map.columns && row >= 0;
		return inside ? [row, Math.max(column, -1)] : null;
	}
}

function truncateText(context, text, maxWidth) {
	if (context.measureText(text).width <= maxWidth) return text;
	const characters = [...text];
	while (characters.length && context.measureText(`${characters.join("")}…`).width > maxWidth) characters.pop();
	return `${characters.join("")}…`;
}
