"""Terminal output with rich (the only module of `render` that imports it); readable without colours."""

import io
from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from peasy.render import number, sanitize, tex
from peasy.render.ascii_plot import ascii_plot
from peasy.render.diagram_tree import tree_rows
from peasy.render.figure_tables import tables_of
from peasy.render.grid import Grid, figure_as_table, lay_out, table_cells
from peasy.views.document import (
    Arithmetic,
    CacheFigure,
    Curves,
    Diagram,
    Document,
    DocumentPart,
    Formula,
    Heading,
    Links,
    Maps,
    Matrix,
    Paragraph,
    Plane,
    Table,
)

MAX_SIZE = 40
"""Maximum number of rows or columns of one matrix."""

MAX_LABEL_WIDTH = 24
GUTTER = 2

_TONES = {"plain": ("", ""), "note": ("", "dim"), "good": ("✓ ", "green"), "bad": ("✗ ", "red")}


def draw(document: Document, width: int = 80, colour: bool = False) -> str:
    """Render the document as lines of at most `width` columns, with ANSI colours if `colour`."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        force_jupyter=False,  # in a notebook rich would display every line instead of writing it to `file`
        color_system="truecolor" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )
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
        case Heading(text, count):
            _print(
                console,
                Text(f"{f'{count}. ' if count is not None else ''}{sanitize.one_line(text)}", style="bold cyan"),
            )
        case Paragraph(text, tone):
            sign, style = _TONES.get(tone, _TONES["plain"])
            _print(console, Text(sign + sanitize.one_line(text), style=style))
        case Formula(formula):
            _print(console, Text(tex.to_plain_text(formula), style="italic"), indent=2)
        case Arithmetic(title, lines):
            _print(console, Text(sanitize.one_line(title), style="bold"))
            for line in lines:
                _print(console, Text(sanitize.one_line(line)), indent=2)
        case Matrix():
            _print_matrix(part, document, console)
        case Table():
            _print_table(part, document, console)
        case Plane() | Curves():
            _print_plot(part, document, console)
        case Diagram():
            _print_diagram(part, console)
        case Maps() | Links() | CacheFigure():
            for table in tables_of(part):
                _print_part(table, document, console)


def _print_plot(figure: Plane | Curves, document: Document, console: Console) -> None:
    lines = ascii_plot(figure, console.width, document.decimals)
    if lines is None:
        _print_table(figure_as_table(figure), document, console)
        return
    for index, line in enumerate(lines):
        console.print(Text(line, style="" if index else "bold"), no_wrap=True, overflow="crop", crop=True)


def _print(console: Console, text: Text, indent: int = 0) -> None:
    console.print(Padding(text, (0, 0, 0, indent), expand=False))


def _print_matrix(matrix: Matrix, document: Document, console: Console) -> None:
    grid = lay_out(matrix, document.decimals, MAX_SIZE)
    title = Text(sanitize.token_label(matrix.name), style="bold")
    if matrix.tex:
        title.append(f"   {tex.to_plain_text(matrix.tex)}", style="not bold italic")
    _print(console, title)
    if matrix.description:
        _print(console, Text(sanitize.one_line(matrix.description), style="dim"))
    for line in _grid_lines(grid, console.width, coloured=_has_colour(console)):
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    if grid.notice:
        _print(console, Text(grid.notice, style="dim"))


def _print_diagram(diagram: Diagram, console: Console) -> None:
    """Write a diagram as a tree: names, descriptions if they fit, and sizes at the right."""
    _print(console, Text(sanitize.one_line(diagram.title), style="bold"))
    rows = tree_rows(diagram)
    name_width = min(max((cell_len(name) for name, _, _ in rows), default=0), console.width // 2)
    note_width = min(max((cell_len(note) for _, _, note in rows), default=0), console.width // 3)
    description_width = console.width - name_width - note_width - 2 * GUTTER
    for name, description, note in rows:
        line = Text(_fit_width(name, name_width), style="bold").append(" " * GUTTER)
        line.append(_fit_width(description, description_width), style="not bold").append(" " * GUTTER)
        line.append(_fit_width(" " * (note_width - cell_len(note)) + note, note_width), style="not bold dim")
        console.print(line, no_wrap=True, overflow="crop", crop=True)


def _fit_width(text: str, width: int) -> str:
    fits = cell_len(text) <= width
    return set_cell_size(text if fits else set_cell_size(text, max(width - 1, 0)) + "…", max(width, 0))


def _has_colour(console: Console) -> bool:
    return console.color_system is not None and not console.no_color


def _grid_lines(grid: Grid, width: int, coloured: bool) -> Iterator[Text]:
    cells = [[_cell(grid, row, column, coloured) for column in grid.columns] for row in grid.rows]
    labels = [_truncate_label(grid.row_label(row)) for row in grid.rows]
    over_bar = "  " if grid.scale and not coloured else " " if grid.scale else ""
    headers = [_truncate_label(grid.column_label(column)) + over_bar for column in grid.columns]
    widths = [max([cell_len(header), *(row[index].cell_len for row in cells)]) for index, header in enumerate(headers)]
    label_width = max(
        [cell_len(label) for label in [*labels, grid.corner if len(grid.corner) <= MAX_LABEL_WIDTH else ""]]
    )
    if len(grid.corner) > MAX_LABEL_WIDTH:
        yield Text(grid.corner, style="dim")
    for band in _column_groups(widths, width - label_width):
        if len(band) < len(widths):
            which = f"columns {band[0] + 1} to {band[-1] + 1}" if len(band) > 1 else f"column {band[0] + 1}"
            yield Text(f"{which} of {len(widths)}", style="dim")
        corner = grid.corner if len(grid.corner) <= MAX_LABEL_WIDTH else ""
        yield _line(
            Text(set_cell_size(corner, label_width), style="dim"),
            [Text(headers[c], style="bold") for c in band],
            widths,
            band,
        )
        for label, row in zip(labels, cells, strict=True):
            yield _line(Text(set_cell_size(label, label_width), style="bold"), [row[c] for c in band], widths, band)


def _column_groups(widths: list[int], max_width: int) -> Iterator[list[int]]:
    """Yield groups of columns that fit side by side."""
    band: list[int] = []
    used = 0
    for column, width in enumerate(widths):
        if band and used + GUTTER + width > max_width:
            yield band
            band, used = [], 0
        band.append(column)
        used += GUTTER + width
    yield band


def _line(label: Text, cells: list[Text], widths: list[int], columns: list[int]) -> Text:
    line = Text().append_text(label)
    for text, column in zip(cells, columns, strict=True):
        line.append(" " * GUTTER)
        pad = Text(" " * (widths[column] - text.cell_len), style=text.style)
        line.append_text(pad)
        line.append_text(text)
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
    return label if cell_len(label) <= MAX_LABEL_WIDTH else set_cell_size(label, MAX_LABEL_WIDTH - 1) + "…"


def _print_table(table: Table, document: Document, console: Console) -> None:
    from rich.table import Table as Drawn  # rich wraps long cells

    rows, numeric, notice = table_cells(table, document, 10 * MAX_SIZE)
    if table.title:
        _print(console, Text(sanitize.token_label(table.title), style="bold"))
    rich_table = Drawn(box=None, pad_edge=False, padding=(0, GUTTER, 0, 0), header_style="bold")
    for column, right in enumerate(numeric):
        header = sanitize.one_line(table.columns[column]) if column < len(table.columns) else ""
        rich_table.add_column(Text(header), justify="right" if right else "left", overflow="fold")
    for row in rows:
        rich_table.add_row(*(Text(cell) for cell in row))
    console.print(rich_table)
    if notice:
        _print(console, Text(notice, style="dim"))
