"""Terminal output with rich (the only module of `render` that imports it); readable without colours."""

import io
from collections.abc import Iterator
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from peasy.render import number, sanitize, tex
from peasy.render.ascii_plot import ascii_plot
from peasy.render.figure_tables import tables_of
from peasy.render.grid import Grid, lay_out, table_text
from peasy.views import document as doc
from peasy.views.document import Document, DocumentPart

_MAX_SIZE = 40
"""Maximum number of rows or columns of one matrix."""

_MAX_LABEL_WIDTH = 24
_GUTTER = 2

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
