"""Terminal output with rich (the only module of `render` that imports it); readable without colours.

Curves and points are plotted with characters.
"""

import io
import math
from collections.abc import Iterator
from itertools import pairwise
from string import ascii_lowercase
from typing import Literal
from unicodedata import combining, east_asian_width

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from peasy.render import number, sanitize, tex
from peasy.render.figure_tables import tables_of
from peasy.render.grid import Grid, lay_out, table_text
from peasy.render.number import format_number
from peasy.render.plot import format_tick
from peasy.views import document as doc
from peasy.views.document import Curves, Document, DocumentPart, Plane

_MAX_SIZE = 40
"""Maximum number of rows or columns of one matrix."""

_MAX_LABEL_WIDTH = 24
_GUTTER = 2

MAX_TABLE_POINTS = 16
"""Maximum number of points shown as a table; more are plotted."""

HEIGHT = 14
_MAX_WIDTH = 100
_MAX_NAME_LENGTH = 14
_DOT = "•"

_STYLES = {"note": "dim", "good": "green", "bad": "red"}


def draw(document: Document, width: int = 80, colour: bool = False) -> str:
    """Render the document as lines of at most `width` columns, with ANSI colours if `colour`."""
    out = io.StringIO()
    # in a notebook rich would display every line instead of writing it to `file`
    console = Console(
        file=out, width=width, force_terminal=colour, force_jupyter=False, no_color=not colour,
        color_system="truecolor" if colour else None, legacy_windows=False, emoji=False, markup=False, highlight=False,
    )  # fmt: skip
    print_document(document, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n" if not colour else out.getvalue()


def print_document(document: Document, console: Console) -> None:
    """Write the document to a rich console, using its width and colour support."""
    _print(console, Text(sanitize.one_line(document.title), style="bold"))
    for part in document.parts:
        console.print()
        _print_part(part, document, console)
    if document.has_numbers():
        console.print()
        _print(console, Text(number.rounding_notice(document.decimals), style="dim"))


def _print_part(part: DocumentPart, document: Document, console: Console) -> None:
    match part:
        case doc.Heading(text):
            _print(console, Text(part.prefix + sanitize.one_line(text), style="bold cyan"))
        case doc.Paragraph(text, tone):
            _print(console, Text(part.sign + sanitize.one_line(text), style=_STYLES.get(tone, "")))
        case doc.Formula(formula):
            _print(console, Text(tex.to_plain_text(formula), style="italic"), indent=2)
        case doc.Arithmetic(title, lines):
            _print(console, Text(sanitize.one_line(title), style="bold"))
            for line in lines:
                _print(console, Text(sanitize.one_line(line)), indent=2)
        case doc.Matrix():
            _print_matrix(part, document, console)
        case doc.Table():
            shown = table_text(part, document.decimals, 10 * _MAX_SIZE)
            if part.title:
                _print(console, Text(sanitize.token_label(part.title), style="bold"))
            rich_table = RichTable(box=None, pad_edge=False, padding=(0, _GUTTER, 0, 0), header_style="bold")
            for header, numeric in zip(shown.header, shown.numeric, strict=True):
                side: Literal["left", "right"] = "right" if numeric else "left"
                rich_table.add_column(Text(header), justify=side, overflow="fold")  # wraps long cells
            for row in shown.rows:
                rich_table.add_row(*map(Text, row))
            console.print(rich_table)
            if shown.notice:
                _print(console, Text(shown.notice, style="dim"))
        case doc.Diagram():
            _print_diagram(part, console)
        case doc.Plane() | doc.Curves() if (plot := ascii_plot(part, console.width, document.decimals)) is not None:
            for index, line in enumerate(plot):
                _print_cropped(console, Text(line, style="" if index else "bold"))
        case _:
            for table in tables_of(part):
                _print_part(table, document, console)


def _print(console: Console, text: Text, indent: int = 0) -> None:
    console.print(Padding(text, (0, 0, 0, indent), expand=False))


def _print_cropped(console: Console, line: Text) -> None:
    console.print(line, no_wrap=True, overflow="crop", crop=True)


def _print_matrix(matrix: doc.Matrix, document: Document, console: Console) -> None:
    grid = lay_out(matrix, document.decimals, _MAX_SIZE)
    title = Text(sanitize.token_label(matrix.name), style="bold")
    if matrix.tex:
        title.append(f"   {tex.to_plain_text(matrix.tex)}", style="not bold italic")
    _print(console, title)
    if matrix.description:
        _print(console, Text(sanitize.one_line(matrix.description), style="dim"))
    coloured = console.color_system is not None and not console.no_color
    for line in _grid_lines(grid, console.width, coloured):
        _print_cropped(console, line)
    if grid.notice:
        _print(console, Text(grid.notice, style="dim"))


def _print_diagram(diagram: doc.Diagram, console: Console) -> None:
    """Write a diagram as a tree: names, descriptions if they fit, and sizes at the right."""
    _print(console, Text(sanitize.one_line(diagram.title), style="bold"))
    rows = [row for column in diagram.columns for block in column for row in _tree_rows(block, "", "")]
    name_width = min(max((cell_len(name) for name, _, _ in rows), default=0), console.width // 2)
    note_width = min(max((cell_len(note) for _, _, note in rows), default=0), console.width // 3)
    description_width = console.width - name_width - note_width - 2 * _GUTTER
    for name, description, note in rows:
        line = Text(_fit_width(name, name_width), style="bold").append(" " * _GUTTER)
        line.append(_fit_width(description, description_width), style="not bold").append(" " * _GUTTER)
        line.append(_fit_width(" " * (note_width - cell_len(note)) + note, note_width), style="not bold dim")
        _print_cropped(console, line)


def _tree_rows(block: doc.Node, lead: str, below: str) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each box: tree branch with name, description, size."""
    name = lead + block.times + sanitize.token_label(block.name)
    yield name, sanitize.one_line(block.description), sanitize.one_line(block.note)
    for inner in block.nodes:
        last = inner is block.nodes[-1]
        yield from _tree_rows(inner, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))


def _fit_width(text: str, width: int) -> str:
    fits = cell_len(text) <= width
    return set_cell_size(text if fits else set_cell_size(text, max(width - 1, 0)) + "…", max(width, 0))


def _grid_lines(grid: Grid, width: int, coloured: bool) -> Iterator[Text]:
    cells = [[_cell(grid, row, column, coloured) for column in grid.columns] for row in grid.rows]
    labels = [_truncate_label(grid.row_label(row)) for row in grid.rows]
    over_bar = "  " if grid.scale and not coloured else " " if grid.scale else ""
    headers = [_truncate_label(grid.column_label(column)) + over_bar for column in grid.columns]
    widths = [max([cell_len(header), *(row[index].cell_len for row in cells)]) for index, header in enumerate(headers)]
    corner = grid.corner if len(grid.corner) <= _MAX_LABEL_WIDTH else ""
    label_width = max(map(cell_len, [*labels, corner]))
    if corner != grid.corner:
        yield Text(grid.corner, style="dim")
    for band in _column_groups(widths, width - label_width):
        if len(band) < len(widths):
            which = f"columns {band[0] + 1} to {band[-1] + 1}" if len(band) > 1 else f"column {band[0] + 1}"
            yield Text(f"{which} of {len(widths)}", style="dim")
        header_cells = [Text(headers[c], style="bold") for c in band]
        yield _line(Text(set_cell_size(corner, label_width), style="dim"), header_cells, widths, band)
        for label, row in zip(labels, cells, strict=True):
            yield _line(Text(set_cell_size(label, label_width), style="bold"), [row[c] for c in band], widths, band)


def _column_groups(widths: list[int], max_width: int) -> Iterator[list[int]]:
    """Yield groups of columns that fit side by side."""
    band, used = list[int](), 0
    for column, width in enumerate(widths):
        if band and used + _GUTTER + width > max_width:
            yield band
            band, used = [], 0
        band.append(column)
        used += _GUTTER + width
    yield band


def _line(label: Text, cells: list[Text], widths: list[int], columns: list[int]) -> Text:
    line = Text().append_text(label)
    for text, column in zip(cells, columns, strict=True):
        line.append(" " * _GUTTER)
        line.append_text(Text(" " * (widths[column] - text.cell_len), style=text.style)).append_text(text)
    return line


def _cell(grid: Grid, row: int | None, column: int | None, coloured: bool) -> Text:
    written = grid.text(row, column)
    if row is None or column is None:
        return Text(written, style="dim")
    shade = grid.shade(row, column)
    sign = "►" if grid.marked(row, column) else ""
    if shade is None:
        # Keep numbers aligned with neighbours that have a bar.
        return Text(f"{sign}{written}" + ("  " if grid.scale and not coloured else ""))
    if coloured:
        return Text(f" {sign}{written} ", style=Style(color=shade.text_colour, bgcolor=shade.background))
    return Text(f"{sign}{written} {shade.bar}")


def _truncate_label(label: str) -> str:
    return label if cell_len(label) <= _MAX_LABEL_WIDTH else set_cell_size(label, _MAX_LABEL_WIDTH - 1) + "…"


def ascii_plot(figure: Plane | Curves, width: int, decimals: int) -> list[str] | None:
    """Return the plot as lines, or None if a table is better: few points or a narrow screen."""
    if isinstance(figure, Plane):
        points = [point for point in figure.points if math.isfinite(point[1]) and math.isfinite(point[2])]
        is_large = len(points) > MAX_TABLE_POINTS
        return _plot_points(figure, points, min(width, _MAX_WIDTH)) if is_large and width >= 40 else None
    lines = [(name, sorted(each for each in points if all(map(math.isfinite, each)))) for name, points in figure.lines]
    is_large = sum(len(points) for _, points in lines) > MAX_TABLE_POINTS and len(lines) <= len(ascii_lowercase)
    return list(_plot_curves(figure, lines, min(width, _MAX_WIDTH), decimals)) if is_large and width >= 40 else None


class _Canvas:
    """Character canvas with a mapping from data to rows and columns."""

    def __init__(self, xs: list[float], ys: list[float], columns: int) -> None:
        self.low, self.high = (min(xs), min(ys)), (max(xs), max(ys))
        self.columns = columns
        self.rows = [[" "] * columns for _ in range(HEIGHT)]

    def to_cell(self, x: float, y: float) -> tuple[int, int]:
        across, up = ((v - low) / ((high - low) or 1) for v, low, high in zip((x, y), self.low, self.high, strict=True))
        return round((1 - up) * (HEIGHT - 1)), round(across * (self.columns - 1))

    def with_axes(self, x_axis: str, y_axis: str) -> Iterator[str]:
        top, bottom = _format_end(self.high[1]), _format_end(self.low[1])
        label_width = max(len(top), len(bottom))
        if y_axis:
            yield " " * (label_width + 1) + sanitize.one_line(y_axis)
        for index, row in enumerate(self.rows):
            label = {0: top, HEIGHT - 1: bottom}.get(index, "")
            yield f"{label:>{label_width}} {'┤' if label else '│'}{''.join(row)}".rstrip()
        yield " " * (label_width + 1) + "└" + "─" * self.columns
        left, right = _format_end(self.low[0]), _format_end(self.high[0])
        between = self.columns - len(left) - len(right)
        yield " " * (label_width + 2) + left + sanitize.one_line(x_axis)[:between].center(between) + right


def _plot_curves(
    curves: Curves, lines: list[tuple[str, list[tuple[float, float]]]], width: int, decimals: int
) -> Iterator[str]:
    """Draw each curve as its letter, from point to point; later curves cover earlier ones."""
    all_points = [point for _, points in lines for point in points]
    paper = _Canvas([x for x, _ in all_points], [y for _, y in all_points], width - 12)
    for letter, (_, points) in zip(ascii_lowercase, lines, strict=False):
        for row, column in _line_cells([paper.to_cell(x, y) for x, y in points]):
            paper.rows[row][column] = letter
    yield sanitize.one_line(curves.title)
    yield from paper.with_axes(curves.x_axis, curves.y_axis)
    for letter, (name, points) in zip(ascii_lowercase, lines, strict=False):
        ends = " to ".join(format_number(y, decimals) for _, y in (points[0], points[-1])) if points else ""
        yield f"{letter}  {sanitize.token_label(name)}: {f'from {ends}' if points else 'no numbers'}"


def _format_end(value: float) -> str:
    return format_tick(float(f"{value:.3g}"))


def _line_cells(cells: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield from cells[:1]
    for (row, column), (next_row, next_column) in pairwise(cells):
        steps = max(abs(next_column - column), 1)
        for step in range(1, steps + 1):
            yield round(row + (next_row - row) * step / steps), column + (next_column - column) * step // steps


def _plot_points(plane: Plane, points: list[tuple[str, float, float]], width: int) -> list[str]:
    """Draw each name at its point, or a dot if it does not fit."""
    paper = _Canvas([x for _, x, _ in points], [y for _, _, y in points], width - 12)
    unlabelled = 0
    for name, x, y in points:
        row, column = paper.to_cell(x, y)
        label = sanitize.token_label(name)
        label = label if len(label) <= _MAX_NAME_LENGTH else label[: _MAX_NAME_LENGTH - 1] + "…"
        starts = (column, column - len(label) + 1)
        # Wide and combining characters do not take exactly one terminal column.
        narrow = not any(combining(letter) or east_asian_width(letter) in ("W", "F") for letter in label)
        start = next((at for at in starts if narrow and _is_free(paper.rows[row], at, len(label))), None)
        if start is not None:
            paper.rows[row][start : start + len(label)] = label
        else:
            unlabelled += 1
            paper.rows[row][column] = _DOT if paper.rows[row][column] == " " else paper.rows[row][column]
    notes = [f"{unlabelled} of {len(points)} names do not fit; --out FILE.html shows all."] if unlabelled else []
    return [sanitize.one_line(plane.title), *paper.with_axes(plane.x_axis, plane.y_axis), *notes]


def _is_free(row: list[str], start: int, count: int) -> bool:
    """True if `count` characters fit at `start`, with a space on either side."""
    return start >= 0 and start + count <= len(row) and not "".join(row[max(start - 1, 0) : start + count + 1]).strip()
