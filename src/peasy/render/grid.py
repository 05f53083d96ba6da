"""A matrix as a grid of written cells: labels, rounding, and a window where it is too large to show whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from peasy.render import glyph, number
from peasy.render.palette import Scale, Shade, scale_for
from peasy.views.document import Cell, Curves, Diagram, Document, Matrix, Plane, Table

Places = tuple[int | None, ...]
"""Which rows or columns are shown, in order; None stands for those left out."""

GAP = "⋯"


@dataclass(frozen=True)
class Grid:
    """What of a matrix is shown, and how each cell is written."""

    matrix: Matrix
    rows: Places
    columns: Places
    decimals: int
    scale: Scale | None

    def row_label(self, row: int | None) -> str:
        """What stands before a row."""
        return _label(self.matrix.rows, row)

    def column_label(self, column: int | None) -> str:
        """What stands above a column."""
        return _label(self.matrix.columns, column)

    def cell(self, row: int, column: int) -> Cell:
        """The cell itself; None where a row is too short."""
        return _at(self.matrix.values, row, column)

    def text(self, row: int | None, column: int | None) -> str:
        """The cell as it is written."""
        if row is None or column is None:
            return GAP
        cell = self.cell(row, column)
        return glyph.label(cell) if isinstance(cell, str) else number.write_cell(cell, self.decimals)

    def shade(self, row: int | None, column: int | None) -> Shade | None:
        """The cell's shade; None where nothing is shaded or no finite number stands."""
        if self.scale is None or row is None or column is None:
            return None
        return self.scale.shade(_at(self.matrix.shades, row, column) if self.matrix.shades else self.cell(row, column))

    def marked(self, row: int | None, column: int | None) -> bool:
        """Whether the cell is to be pointed out."""
        return (row, column) in self.matrix.marks

    @property
    def corner(self) -> str:
        """What rows and columns are, in words."""
        row_axis, column_axis = glyph.prose(self.matrix.row_axis), glyph.prose(self.matrix.column_axis)
        return " ".join(f"{axis} {arrow}" for axis, arrow in ((row_axis, "↓"), (column_axis, "→")) if axis)

    @property
    def notice(self) -> str:
        """What was left out, in words; empty when nothing was."""
        said = [
            f"{_left_out(places, total):,} of {total:,} {what} are left out"
            for places, total, what in (
                (self.rows, _height(self.matrix), "rows"),
                (self.columns, _width(self.matrix), "columns"),
            )
            if None in places
        ]
        return f"{' and '.join(said)} to keep this readable ({GAP})." if said else ""


def lay_out(matrix: Matrix, decimals: int, most: int) -> Grid:
    """The grid of a matrix, at most `most` rows and columns of it; decimals and shades are those of what is shown."""
    rows, columns = window(_height(matrix), most), window(_width(matrix), most)
    shown = [list(_picked(matrix.values[row], columns)) for row in rows if row is not None and row < len(matrix.values)]
    needed = number.decimals_for((cell for row in shown for cell in row), decimals)
    shaded = [list(_picked(row, columns)) for row in matrix.shades] if matrix.shades else shown
    return Grid(matrix, rows, columns, needed, scale_for(shaded) if matrix.shaded else None)


def window(count: int, most: int) -> Places:
    """The first and the last of `count`, at most `most` together, with None where some are left out.

    >>> window(3, 5), window(9, 4)
    ((0, 1, 2), (0, 1, 2, None, 8))
    """
    if count <= most:
        return tuple(range(count))
    last = max(most // 4, 1)
    return (*range(most - last), None, *range(count - last, count))


def table_cells(table: Table, document: Document, most: int) -> tuple[list[list[str]], list[bool], str]:
    """A table's rows as written, which columns hold numbers, and what was left out."""
    width = max([len(table.columns), *(len(row) for row in table.rows)], default=0)
    columns = [[row[place] if place < len(row) else None for row in table.rows] for place in range(width)]
    decimals = [number.decimals_for(column, document.decimals) for column in columns]
    numeric = [any(map(number.is_number, c)) and not any(isinstance(v, str) for v in c) for c in columns]
    places = window(len(table.rows), most)
    rows = [
        [GAP] * width if place is None else [_written(columns[c][place], decimals[c]) for c in range(width)]
        for place in places
    ]
    left = _left_out(places, len(table.rows))
    notice = f"{left:,} of {len(table.rows):,} rows are left out to keep this readable ({GAP})." if left else ""
    return rows, numeric, notice


def as_table(picture: Plane | Curves | Diagram) -> Table:
    """The table form of a picture: every point or box by name."""
    if isinstance(picture, Diagram):
        return Table(("part", "what it is", "size"), tuple(_boxes(picture)), picture.title)
    columns = ("", picture.x_axis or "x", picture.y_axis or "y")
    if isinstance(picture, Plane):
        return Table(columns, picture.points, picture.title)
    points = tuple((name, x, y) for name, line in picture.lines for x, y in line)
    return Table(columns, points, picture.title)


def _boxes(diagram: Diagram) -> Iterator[tuple[str, str, str]]:
    for depth, block in diagram.walk():
        times = f"{block.times} × " if block.times > 1 else ""
        yield f"{'– ' * depth}{times}{block.name}", block.says, block.note


def _at(values: Sequence[Sequence[Cell]], row: int, column: int) -> Cell:
    found = values[row] if row < len(values) else ()
    return found[column] if column < len(found) else None


def _written(cell: Cell, decimals: int) -> str:
    return glyph.prose(cell) if isinstance(cell, str) else number.write_cell(cell, decimals)


def _label(labels: tuple[str, ...], place: int | None) -> str:
    if place is None:
        return GAP
    return glyph.label(labels[place]) if place < len(labels) else str(place + 1)


def _picked(row: Sequence[Cell], places: Places) -> Iterator[Cell]:
    return (row[place] for place in places if place is not None and place < len(row))


def _height(matrix: Matrix) -> int:
    return max(len(matrix.rows), len(matrix.values))


def _width(matrix: Matrix) -> int:
    return max([len(matrix.columns), *(len(row) for row in matrix.values)], default=0)


def _left_out(places: Places, total: int) -> int:
    return total - sum(place is not None for place in places)
