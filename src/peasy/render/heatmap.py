"""SVG heat map of a matrix with its numbers, and SVG of a table."""

from xml.sax.saxutils import escape

from peasy.render import palette, sanitize
from peasy.render.grid import Grid, lay_out, table_cells
from peasy.render.number import format_number
from peasy.render.svg_layout import (
    BOLD_WIDTH_FACTOR,
    SvgFragment,
    SvgSize,
    formula_at,
    formula_text,
    text_at,
    text_width,
    truncate_to_width,
)
from peasy.views.document import Document, Matrix, Table

MAX_SIZE = 64
"""Maximum number of rows or columns of one heat map."""

MAX_NUMBERED_COLUMNS = 16
"""Maximum number of columns with a number in every cell; wider maps have small cells with tooltips."""

CELL_HEIGHT, SMALL_CELL, MAX_CELL_WIDTH, MAX_LABEL_WIDTH = 30, 14, 84, 120
MAX_TABLE_ROWS, MAX_TABLE_CELL_WIDTH = 40, 440


def matrix_fragment(matrix: Matrix, decimals: int) -> SvgFragment:
    """Draw the matrix with its name, formula, labels and cells."""
    grid = lay_out(matrix, decimals, MAX_SIZE)
    return _HeatMap(grid).fragment()


class _HeatMap:
    def __init__(self, grid: Grid) -> None:
        self.grid, self.matrix = grid, grid.matrix
        self.name, self.formula_text = (
            sanitize.token_label(grid.matrix.name),
            formula_text(grid.matrix.tex) if grid.matrix.tex else "",
        )
        self.name_is_formula = self.formula_text.casefold() == self.name.casefold()
        if self.name_is_formula:  # "x" above "X" would be redundant
            self.name, self.formula_text = self.formula_text, ""
        self.size = 13 if len(grid.columns) <= MAX_NUMBERED_COLUMNS else 10
        self.shows_numbers = len(grid.columns) <= MAX_NUMBERED_COLUMNS
        self.row_labels = [truncate_to_width(grid.row_label(row), self.size, MAX_LABEL_WIDTH) for row in grid.rows]
        self.column_labels = [
            truncate_to_width(grid.column_label(column), self.size, MAX_LABEL_WIDTH) for column in grid.columns
        ]
        self.cell_width, self.cell_height = self._cell_size()
        self.labels_rotated = any(
            text_width(column_label, self.size) > self.cell_width - 4 for column_label in self.column_labels
        )
        self.left = max((text_width(row_label, self.size) for row_label in self.row_labels), default=0) + 8
        self.top = 14 + (18 if self.formula_text else 0) + (19 if grid.corner else 0) + self._column_label_height()

    def _cell_size(self) -> tuple[float, float]:
        if not self.shows_numbers:
            return SMALL_CELL, SMALL_CELL
        written = (self.grid.text(row, column) for row in self.grid.rows for column in self.grid.columns)
        labels = (
            (min(text_width(label, 13) + 8, MAX_CELL_WIDTH) for label in self.column_labels)
            if len(self.grid.columns) <= 8
            else ()
        )
        return max([40.0, *labels, *(text_width(text, 13) + 16 for text in written)]), CELL_HEIGHT

    def _column_label_height(self) -> float:
        if not self.labels_rotated:
            return 20
        return 14 + max(text_width(column_label, self.size) for column_label in self.column_labels) * 0.75

    def fragment(self) -> SvgFragment:
        bottom, notes = self._notes()
        width = max(
            self.left + self.cell_width * len(self.grid.columns) + (30 if self.labels_rotated else 0),
            text_width(self.name, 13) * BOLD_WIDTH_FACTOR,
            text_width(self.formula_text, 12),
            text_width(self.grid.corner, 11),
        )
        return SvgFragment(SvgSize(width, bottom), "".join([*self._head(), *self._labels(), *self._cells(), *notes]))

    def _head(self) -> list[str]:
        elements, y = (
            [formula_at(0, 13, self.name, "name") if self.name_is_formula else text_at(0, 13, self.name, "name")],
            13,
        )
        if self.formula_text:
            y += 18
            elements.append(formula_at(0, y, self.formula_text))
        if self.grid.corner:
            elements.append(text_at(0, y + 17, self.grid.corner, "axis"))
        return elements

    def _labels(self) -> list[str]:
        elements, kind = [], "label" if self.shows_numbers else "tiny"
        for index, label in enumerate(self.column_labels):
            x = self.left + self.cell_width * (index + 0.5)
            if self.labels_rotated:
                elements.append(text_at(x, self.top - 6, label, kind, rotate=-48))
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
        marks = [self._highlight(y, x) for y, row, x, column in cells if self.grid.marked(row, column)]
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
        if not self.shows_numbers:
            return rect
        middle = text_at(
            left + self.cell_width / 2,
            top + self.cell_height / 2 + 4.5,
            text,
            "number" if shade else "number bare-ink",
            "middle",
            fill=shade.text_colour if shade else "",
        )
        return rect + middle

    def _highlight(self, y: int, x: int) -> str:
        left, top = self.left + self.cell_width * x, self.top + self.cell_height * y
        return (
            f'<rect x="{left + 1:.1f}" y="{top + 1:.1f}" width="{self.cell_width - 2:.1f}" '
            f'height="{self.cell_height - 2:.1f}" rx="3" class="marked"/>'
        )

    def _notes(self) -> tuple[float, list[str]]:
        bottom = self.top + self.cell_height * len(self.grid.rows)
        notes = []
        if self.grid.scale and not self.shows_numbers:
            notes.append(colour_bar(self.grid.scale, self.left, bottom + 10, self.grid.decimals))
            bottom += 40
        if self.grid.notice:
            notes.append(text_at(0, bottom + 16, self.grid.notice, "small"))
            bottom += 22
        return bottom, notes


def colour_bar(scale: palette.ColourScale, left: float, top: float, decimals: int) -> str:
    """Draw the colour bar with the ends of the scale."""
    steps = palette.LEVELS + 1
    bars = "".join(
        f'<rect x="{left + 5 * level:.1f}" y="{top:.1f}" width="5.2" height="10" '
        f'fill="{palette.Shade(scale.palette, level).background}"/>'
        for level in range(steps)
    )
    low = text_at(left, top + 23, format_number(scale.low, decimals), "small")
    high = text_at(left + 5 * steps, top + 23, format_number(scale.high, decimals), "small", "end")
    return bars + low + high


def table_fragment(table: Table, document: Document) -> SvgFragment:
    """Draw a table as lines of text below its header."""
    rows, numeric, notice = table_cells(table, document, MAX_TABLE_ROWS)
    headers = [sanitize.one_line(column) for column in table.columns] + [""] * (len(numeric) - len(table.columns))
    lines = [[truncate_to_width(cell, 13, MAX_TABLE_CELL_WIDTH) for cell in line] for line in (headers, *rows)]
    widths = [max(text_width(line[column_index], 13) for line in lines) + 18 for column_index in range(len(numeric))]
    title = sanitize.token_label(table.title)
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
    return SvgFragment(
        SvgSize(max([sum(widths), text_width(title, 13) * BOLD_WIDTH_FACTOR]), height), "".join(body), ends_line=True
    )
