// One heat map drawn large: cells, some or all of the tokens beside them, numbers where they fit, and the chosen cell.

import { colourOf, make } from "./base.js";
import { cssColour, inkOn, paintMap, shareOf } from "./colour.js";
import { writeNumber } from "./numbers.js";

const FONT = '12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif';
const TURN = -0.84;

export class Chart {
  constructor(host, rowLabels, columnLabels) {
    this.host = host;
    this.canvas = make("canvas", { tabindex: 0, role: "application", "aria-roledescription": "heat map" });
    this.cells = document.createElement("canvas");
    [this.rowLabels, this.columnLabels] = [rowLabels, columnLabels];
  }

  // `map`: numbers, start, rows, columns, range, ramp, decimals.
  show(map, room) {
    this.map = map;
    paintMap(this.cells, map.numbers, map.start, map.rows, map.columns, map.range, map.ramp);
    this.layOut(room);
  }

  layOut(room) {
    const { rows, columns } = this.map;
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    const longest = (labels) => labels.reduce((most, label) => Math.max(most, context.measureText(label).width), 0);
    this.left = Math.min(longest(this.rowLabels.slice(0, 400)) * 1.1, Math.max(room * 0.22, 56)) + 10;
    const labelRoom = Math.min(longest(this.columnLabels.slice(0, 400)) * 1.1, 110);
    const over = Math.round(labelRoom * Math.cos(TURN)) + 6;
    const fits = (room - this.left - over - 8) / columns;
    this.cell = Math.max(Math.min(fits, 46, Math.max(640, room * 0.7) / Math.max(rows, 1)), 0.5);
    this.named = this.cell >= 11;
    this.flat = this.named && longest(this.columnLabels) <= this.cell - 4;
    this.top = this.flat ? 22 : Math.round(labelRoom * Math.sin(-TURN)) + 14;
    const width = this.left + this.cell * columns + (this.flat ? 6 : over);
    const height = this.top + this.cell * rows + 30;
    const fine = Math.min(window.devicePixelRatio || 1, 2);
    [this.canvas.width, this.canvas.height] = [Math.round(width * fine), Math.round(height * fine)];
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${height}px`];
    this.fine = fine;
  }

  draw(row, column) {
    const { map, canvas, cell, left, top, fine } = this;
    const context = canvas.getContext("2d");
    this.ink = colourOf(this.host, "--i") || "#000";
    this.soft = colourOf(this.host, "--s") || "#555";
    context.setTransform(fine, 0, 0, fine, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(this.cells, left, top, cell * map.columns, cell * map.rows);
    context.strokeStyle = this.soft;
    context.lineWidth = 0.5;
    context.strokeRect(left, top, cell * map.columns, cell * map.rows);
    this.drawNumbers(context);
    this.drawLabels(context, row, column);
    this.drawLegend(context);
    if (row >= 0) this.drawChosen(context, row, column);
  }

  drawNumbers(context) {
    const { map, cell, left, top } = this;
    if (cell < 36) return;
    context.font = '11px system-ui,"Noto Sans",sans-serif';
    [context.textAlign, context.textBaseline] = ["center", "middle"];
    for (let row = 0; row < map.rows; row++) {
      for (let column = 0; column < map.columns; column++) {
        const value = map.numbers.at(map.start + row * map.columns + column);
        const share = shareOf(value, map.range);
        context.fillStyle = Number.isNaN(value) ? this.soft : inkOn(map.ramp, share);
        const said = Number.isNaN(value) ? "–" : writeNumber(value, 2);
        context.fillText(said, left + cell * (column + 0.5), top + cell * (row + 0.5));
      }
    }
  }

  drawLabels(context, row, column) {
    const { cell, left, top } = this;
    context.font = FONT;
    context.textBaseline = "middle";
    const label = (labels, place, chosen, room, paint) => {
      const skip = Math.max(1, Math.ceil(room / cell));
      if (place !== chosen && (place % skip || (chosen >= 0 && Math.abs(place - chosen) < skip))) return;
      context.fillStyle = place === chosen ? this.ink : this.soft;
      context.font = place === chosen ? `bold ${FONT}` : FONT;
      paint(shorten(context, labels[place] ?? String(place), left - 8));
    };
    for (let place = 0; place < this.map.rows; place++) {
      label(this.rowLabels, place, row, 14, (said) => {
        context.textAlign = "right";
        context.fillText(said, left - 6, top + cell * (place + 0.5));
      });
    }
    for (let place = 0; place < this.map.columns; place++) {
      label(this.columnLabels, place, column, this.flat ? 14 : 19, () => {
        const said = shorten(context, this.columnLabels[place] ?? String(place), 110);
        context.save();
        context.translate(left + cell * (place + 0.5), top - 6);
        if (!this.flat) context.rotate(TURN);
        context.textAlign = this.flat ? "center" : "left";
        context.fillText(said, 0, this.flat ? -4 : 0);
        context.restore();
      });
    }
  }

  drawLegend(context) {
    const { map, left, top, cell } = this;
    const y = top + cell * map.rows + 10;
    const width = Math.min(160, Math.max(cell * map.columns - 70, 60));
    for (let x = 0; x < width; x++) {
      context.fillStyle = cssColour(map.ramp, x / width);
      context.fillRect(left + 30 + x, y, 1.5, 9);
    }
    context.font = '11px system-ui,"Noto Sans",sans-serif';
    context.fillStyle = this.soft;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillText(writeNumber(map.range.low, map.range.signed ? 2 : 0), left + 26, y + 5);
    context.textAlign = "left";
    context.fillText(writeNumber(map.range.high, Math.min(map.decimals, 3)), left + 34 + width, y + 5);
  }

  drawChosen(context, row, column) {
    const { cell, left, top, map } = this;
    context.strokeStyle = this.ink;
    context.lineWidth = 1;
    context.strokeRect(left, top + cell * row, cell * map.columns, cell);
    if (column < 0) return;
    context.lineWidth = 3;
    const size = Math.max(cell, 5);
    const [x, y] = [left + cell * (column + 0.5) - size / 2, top + cell * (row + 0.5) - size / 2];
    context.strokeStyle = "#000";
    context.strokeRect(x, y, size, size);
    context.lineWidth = 1.5;
    context.strokeStyle = "#fff";
    context.strokeRect(x, y, size, size);
  }

  // Which cell lies under a point of the screen; labels count as their row or column.
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - this.top) / this.cell);
    const column = Math.floor((event.clientX - box.left - this.left) / this.cell);
    const inside = row < this.map.rows && column < this.map.columns && row >= 0 && column >= -1e9;
    return inside ? [row, Math.max(column, -1)] : null;
  }
}

function shorten(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const signs = [...text];
  while (signs.length && context.measureText(`${signs.join("")}…`).width > room) signs.pop();
  return `${signs.join("")}…`;
}
