"""Grid layout of a matrix: formatted cells, labels, rounding, and a window if it is too large to show completely."""

from collections.abc import Iterator, Sequence

from peasy.parameters import Record
from peasy.render import number, sanitize
from peasy.render.palette import ColourScale, Shade, scale_for
from peasy.views.document import Cell, Matrix, Table

_ShownIndices = tuple[int | None, ...]
"""Indices of the rows or columns that are shown; None marks a gap."""

ELLIPSIS = "⋯"


class Grid(Record):
    """Shown part of a matrix and the formatting of its cells."""

    matrix: Matrix
    rows: _ShownIndices
    columns: _ShownIndices
    decimals: int
    scale: ColourScale | None

    def row_label(self, row: int | None) -> str:
        """Return the label of a row."""
        return _label(self.matrix.rows, row)

    def column_label(self, column: int | None) -> str:
        """Return the label of a column."""
        return _label(self.matrix.columns, column)

    def cell(self, row: int, column: int) -> Cell:
        """Return the cell; None if the row is too short."""
        return _cell_at(self.matrix.values, row, column)

    def text(self, row: int | None, column: int | None) -> str:
        """Return the formatted cell."""
        if row is None or column is None:
            return ELLIPSIS
        cell = self.cell(row, column)
        return sanitize.token_label(cell) if isinstance(cell, str) else number.format_cell(cell, self.decimals)

    def shade(self, row: int | None, column: int | None) -> Shade | None:
        """Return the cell's shade; None if the matrix is not shaded or the cell has no finite number."""
        if self.scale is None or row is None or column is None:
            return None
        return self.scale.shade(_cell_at(self.matrix.shades or self.matrix.values, row, column))

    def marked(self, row: int | None, column: int | None) -> bool:
        """True if the cell is highlighted."""
        return (row, column) in self.matrix.marks

    @property
    def corner(self) -> str:
        """Axis names for the corner cell."""
        row_axis, column_axis = sanitize.one_line(self.matrix.row_axis), sanitize.one_line(self.matrix.column_axis)
        return " ".join(f"{axis} {arrow}" for axis, arrow in ((row_axis, "↓"), (column_axis, "→")) if axis)

    @property
    def notice(self) -> str:
        """Sentence about omitted rows and columns; empty if there are none."""
        height, width = _size(self.matrix)
        return _omission_notice((self.rows, height, "rows"), (self.columns, width, "columns"))


def lay_out(matrix: Matrix, decimals: int, max_size: int) -> Grid:
    """Lay out a matrix with at most `max_size` rows and columns; decimals and shades depend on the shown cells only."""
    rows, columns = (shown_indices(count, max_size) for count in _size(matrix))
    kept = [row for row in rows if row is not None and row < len(matrix.values)]
    values = [list(_select(matrix.values[row], columns)) for row in kept]
    needed = number.decimals_for((cell for row in values for cell in row), decimals)
    shaded = [list(_select(row, columns)) for row in matrix.shades] if matrix.shades else values
    return Grid(matrix, rows, columns, needed, scale_for(shaded) if matrix.shaded else None)


def shown_indices(count: int, max_count: int) -> _ShownIndices:
    """Return the first and last indices of `count`, at most `max_count` together, with None for the gap.

    >>> shown_indices(3, 5), shown_indices(9, 4)
    ((0, 1, 2), (0, 1, 2, None, 8))
    """
    if count <= max_count:
        return tuple(range(count))
    last = max(max_count // 4, 1)
    return (*range(max_count - last), None, *range(count - last, count))


class TableText(Record):
    """Formatted table: header and rows of equal width, which columns are numeric, and the notice about omitted rows."""

    header: list[str]
    rows: list[list[str]]
    numeric: list[bool]
    notice: str


def table_text(table: Table, max_decimals: int, max_rows: int) -> TableText:
    """Format the cells of a table, each column with the decimals that it needs."""
    width = max([len(table.columns), *(len(row) for row in table.rows)], default=0)
    columns = [[row[index] if index < len(row) else None for row in table.rows] for index in range(width)]
    decimals = [number.decimals_for(column, max_decimals) for column in columns]
    numeric = [any(map(number.is_number, c)) and not any(isinstance(v, str) for v in c) for c in columns]
    indices = shown_indices(len(table.rows), max_rows)
    rows = []
    for index in indices:
        cells = [(None if index is None else columns[c][index], decimals[c]) for c in range(width)]
        texts = (sanitize.one_line(v) if isinstance(v, str) else number.format_cell(v, d) for v, d in cells)
        rows.append([ELLIPSIS] * width if index is None else list(texts))
    header = [sanitize.one_line(column) for column in table.columns] + [""] * (width - len(table.columns))
    return TableText(header, rows, numeric, _omission_notice((indices, len(table.rows), "rows")))


def _cell_at(values: Sequence[Sequence[Cell]], row: int, column: int) -> Cell:
    cells = values[row] if row < len(values) else ()
    return cells[column] if column < len(cells) else None


def _label(labels: tuple[str, ...], index: int | None) -> str:
    if index is None:
        return ELLIPSIS
    return sanitize.token_label(labels[index]) if index < len(labels) else str(index + 1)


def _select(row: Sequence[Cell], indices: _ShownIndices) -> Iterator[Cell]:
    return (row[index] for index in indices if index is not None and index < len(row))


def _size(matrix: Matrix) -> tuple[int, int]:
    width = max([len(matrix.columns), *(len(row) for row in matrix.values)], default=0)
    return max(len(matrix.rows), len(matrix.values)), width


def _omission_notice(*axes: tuple[_ShownIndices, int, str]) -> str:
    notices = [
        f"{total - len(shown) + 1:,} of {total:,} {what} are left out" for shown, total, what in axes if None in shown
    ]
    return f"{' and '.join(notices)} to keep this readable ({ELLIPSIS})." if notices else ""
