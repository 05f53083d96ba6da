"""SVG heat map of a matrix with its numbers, and SVG of a table."""

from xml.sax.saxutils import escape

from peasy.render import glyph, palette
from peasy.render.draft import BOLD, Piece, Size, fitted, formula, formula_at, measure, text_at
from peasy.render.grid import Grid, lay_out, table_cells
from peasy.render.number import write
from peasy.views.document import Document, Matrix, Table

MOST = 64
"""Maximum number of rows or columns of one heat map."""

NUMBERED = 16
"""Maximum number of columns with a number in every cell; wider maps have small cells with tooltips."""

CELL_HEIGHT, SMALL_CELL, WIDE_CELL, LABEL_ROOM = 30, 14, 84, 120
TABLE_MOST, TABLE_ROOM = 40, 440


def matrix_piece(matrix: Matrix, decimals: int) -> Piece:
    """Draw the matrix with its name, formula, labels and cells."""
    grid = lay_out(matrix, decimals, MOST)
    return _HeatMap(grid).piece()


class _HeatMap:
    def __init__(self, grid: Grid) -> None:
        self.grid, self.matrix = grid, grid.matrix
        self.name, self.said = glyph.label(grid.matrix.name), formula(grid.matrix.tex) if grid.matrix.tex else ""
        self.typeset = self.said.casefold() == self.name.casefold()
        if self.typeset:  # "x" above "X" would be redundant
            self.name, self.said = self.said, ""
        self.size = 13 if len(grid.columns) <= NUMBERED else 10
        self.numbered = len(grid.columns) <= NUMBERED
        self.row_labels = [fitted(grid.row_label(row), self.size, LABEL_ROOM) for row in grid.rows]
        self.column_labels = [fitted(grid.column_label(column), self.size, LABEL_ROOM) for column in grid.columns]
        self.cell_width, self.cell_height = self._cell_size()
        self.turned = any(measure(column_label, self.size) > self.cell_width - 4 for column_label in self.column_labels)
        self.left = max((measure(row_label, self.size) for row_label in self.row_labels), default=0) + 8
        self.top = 14 + (18 if self.said else 0) + (19 if grid.corner else 0) + self._column_room()

    def _cell_size(self) -> tuple[float, float]:
        if not self.numbered:
            return SMALL_CELL, SMALL_CELL
        written = (self.grid.text(row, column) for row in self.grid.rows for column in self.grid.columns)
        labels = (
            (min(measure(label, 13) + 8, WIDE_CELL) for label in self.column_labels)
            if len(self.grid.columns) <= 8
            else ()
        )
        return max([40.0, *labels, *(measure(text, 13) + 16 for text in written)]), CELL_HEIGHT

    def _column_room(self) -> float:
        if not self.turned:
            return 20
        return 14 + max(measure(column_label, self.size) for column_label in self.column_labels) * 0.75

    def piece(self) -> Piece:
        bottom, notes = self._notes()
        width = max(
            self.left + self.cell_width * len(self.grid.columns) + (30 if self.turned else 0),
            measure(self.name, 13) * BOLD,
            measure(self.said, 12),
            measure(self.grid.corner, 11),
        )
        return Piece(Size(width, bottom), "".join([*self._head(), *self._labels(), *self._cells(), *notes]))

    def _head(self) -> list[str]:
        elements, y = [formula_at(0, 13, self.name, "name") if self.typeset else text_at(0, 13, self.name, "name")], 13
        if self.said:
            y += 18
            elements.append(formula_at(0, y, self.said))
        if self.grid.corner:
            elements.append(text_at(0, y + 17, self.grid.corner, "axis"))
        return elements

    def _labels(self) -> list[str]:
        elements, kind = [], "label" if self.numbered else "tiny"
        for index, label in enumerate(self.column_labels):
            x = self.left + self.cell_width * (index + 0.5)
            if self.turned:
                elements.append(text_at(x, self.top - 6, label, kind, turn=-48))
            else:
                elements.append(text_at(x, self.top - 6, label, kind, "middle"))
        for index, label in enumerate(self.row_labels):
            y = self.top + self.cell_height * (index + 0.5) + 4.5
            elements.append(text_at(self.left - 8, y, label, kind, "end"))
        return elements

    def _cells(self) -> list[str]:
        cells = [
            (y, row, x, column) for y, row in enumerate(self.grid.rows) for x, column in enumerate(self.grid.columns)
        ]
        marks = [self._mark(y, x) for y, row, x, column in cells if self.grid.marked(row, column)]
        return [self._cell(*cell) for cell in cells] + marks

    def _cell(self, y: int, row: int | None, x: int, column: int | None) -> str:
        text = self.grid.text(row, column)
        shade = self.grid.shade(row, column)
        left, top = self.left + self.cell_width * x, self.top + self.cell_height * y
        fill = f'fill="{shade.background}"' if shade else 'class="bare"'
        tip = f"{self.grid.row_label(row)}, {self.grid.column_label(column)}: {text}"
        rect = (
            f'<rect x="{left + 0.75:.1f}" y="{top + 0.75:.1f}" width="{self.cell_width - 1.5:.1f}" '
            f'height="{self.cell_height - 1.5:.1f}" rx="3" {fill}><title>{escape(tip)}</title></rect>'
        )
        if not self.numbered:
            return rect
        middle = text_at(
            left + self.cell_width / 2,
            top + self.cell_height / 2 + 4.5,
            text,
            "number" if shade else "number bare-ink",
            "middle",
            fill=shade.ink if shade else "",
        )
        return rect + middle

    def _mark(self, y: int, x: int) -> str:
        left, top = self.left + self.cell_width * x, self.top + self.cell_height * y
        return (
            f'<rect x="{left + 1:.1f}" y="{top + 1:.1f}" width="{self.cell_width - 2:.1f}" '
            f'height="{self.cell_height - 2:.1f}" rx="3" class="marked"/>'
        )

    def _notes(self) -> tuple[float, list[str]]:
        bottom = self.top + self.cell_height * len(self.grid.rows)
        notes = []
        if self.grid.scale and not self.numbered:
            notes.append(legend(self.grid.scale, self.left, bottom + 10, self.grid.decimals))
            bottom += 40
        if self.grid.notice:
            notes.append(text_at(0, bottom + 16, self.grid.notice, "small"))
            bottom += 22
        return bottom, notes


def legend(scale: palette.Scale, left: float, top: float, decimals: int) -> str:
    """Draw the colour bar with the ends of the scale."""
    steps = palette.LEVELS + 1
    bars = "".join(
        f'<rect x="{left + 5 * level:.1f}" y="{top:.1f}" width="5.2" height="10" '
        f'fill="{palette.Shade(scale.palette, level).background}"/>'
        for level in range(steps)
    )
    low = text_at(left, top + 23, write(scale.low, decimals), "small")
    high = text_at(left + 5 * steps, top + 23, write(scale.high, decimals), "small", "end")
    return bars + low + high


def table_piece(table: Table, document: Document) -> Piece:
    """Draw a table as lines of text below its header."""
    rows, numeric, notice = table_cells(table, document, TABLE_MOST)
    headers = [glyph.prose(column) for column in table.columns] + [""] * (len(numeric) - len(table.columns))
    lines = [[fitted(cell, 13, TABLE_ROOM) for cell in line] for line in (headers, *rows)]
    widths = [max(measure(line[column_index], 13) for line in lines) + 18 for column_index in range(len(numeric))]
    title = glyph.label(table.title)
    top = 24 if title else 0
    body = [text_at(0, 13, title, "name")] if title else []
    for row_index, line in enumerate(lines):
        left = 0.0
        for column_index, cell in enumerate(line):
            x, anchor = (left + widths[column_index] - 18, "end") if numeric[column_index] else (left, "start")
            body.append(text_at(x, top + 14 + 21 * row_index, cell, "label number" if row_index else "axis", anchor))
            left += widths[column_index]
    height = top + 21 * len(lines)
    if notice:
        body.append(text_at(0, height + 14, notice, "small"))
        height += 20
    return Piece(Size(max([sum(widths), measure(title, 13) * BOLD]), height), "".join(body), ends_line=True)
