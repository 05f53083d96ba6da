"""Markdown output with GitHub tables; a matrix follows its name in bold, so that `peasy check` can read it back."""

import re
from collections.abc import Iterable, Iterator, Sequence

from peasy.render import number, sanitize
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

MAX_SIZE = 200
"""Maximum number of rows or columns of one table."""

_TONES = {"note": "> ", "good": "✓ ", "bad": "✗ "}
_SPECIAL = re.compile(r"[\\`*{}\[\]<>#|&$~^!]|(?<![^\W_])_|_(?![^\W_])")
_LIST_START = re.compile(r"^(\d+)(?=[.)](?:\s|$))|^(?=[-+=])")


def draw(document: Document) -> str:
    """Render the document as Markdown."""
    blocks = [f"# {_escape_line(document.title)}"]
    for part in document.parts:
        blocks.extend(_blocks(part, document))
    if document.has_numbers():
        blocks.append(f"*{number.rounding_notice(document.decimals)}*")
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    r"""Escape every character that could be Markdown markup.

    >>> escape("<eos> | W_Q")
    '\\<eos\\> \\| W_Q'
    """
    return _LIST_START.sub(r"\1\\", _SPECIAL.sub(r"\\\g<0>", text))


def _escape_line(text: str) -> str:
    """Return an escaped sentence without outer spaces, which would be markup."""
    return escape(" ".join(sanitize.one_line(text).split()))


def _blocks(part: DocumentPart, document: Document) -> Iterator[str]:
    match part:
        case Heading(text, count):
            yield f"## {f'{count}. ' if count is not None else ''}{_escape_line(text)}"
        case Paragraph(text, tone):
            yield _TONES.get(tone, "") + _escape_line(text)
        case Formula(tex):
            yield f"$$\n{tex}\n$$"
        case Arithmetic(title, lines):
            yield f"*{_escape_line(title)}*" if title else ""
            yield "\n".join(f"    {sanitize.one_line(line)}" for line in lines)
        case Matrix():
            yield from _matrix(lay_out(part, document.decimals, MAX_SIZE))
        case Table():
            rows, numeric, notice = table_cells(part, document, MAX_SIZE)
            yield from _titled_table(part.title, part.columns, rows, numeric, notice)
        case Plane() | Curves() | Diagram():
            yield from _blocks(figure_as_table(part), document)
        case Maps() | Links() | CacheFigure():
            for table in tables_of(part):
                yield from _blocks(table, document)


def _matrix(grid: Grid) -> Iterator[str]:
    matrix = grid.matrix
    yield f"**{escape(sanitize.token_label(matrix.name))}**"
    if matrix.tex:
        yield f"$$\n{matrix.tex}\n$$"
    if matrix.description:
        yield _escape_line(matrix.description)
    header = [grid.corner, *(grid.column_label(column) for column in grid.columns)]
    rows = [[grid.row_label(row), *(_cell(grid, row, column) for column in grid.columns)] for row in grid.rows]
    yield _table(
        map(escape, header), ([escape(row[0]), *row[1:]] for row in rows), [False] + [True] * len(grid.columns)
    )
    if grid.notice:
        yield f"> {grid.notice}"


def _cell(grid: Grid, row: int | None, column: int | None) -> str:
    text = escape(grid.text(row, column)) if row is None or column is None else _format_cell(grid, row, column)
    return f"**{text}**" if text and grid.marked(row, column) else text


def _format_cell(grid: Grid, row: int, column: int) -> str:
    # Numbers are not escaped: the escape for the start of a line would precede a minus sign.
    text = grid.text(row, column)
    return escape(text) if isinstance(grid.cell(row, column), str) else text


def _titled_table(
    title: str, columns: Sequence[str], rows: list[list[str]], numeric: Sequence[bool], notice: str
) -> Iterator[str]:
    if title:
        yield f"**{escape(sanitize.token_label(title))}**"
    header = [escape(sanitize.one_line(column)) for column in columns] + [""] * (len(numeric) - len(columns))
    body = ([cell if numeric[c] else escape(cell) for c, cell in enumerate(row)] for row in rows)
    yield _table(header, body, numeric)
    if notice:
        yield f"> {notice}"


def _table(header: Iterable[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[bool]) -> str:
    ruler = ["---:" if is_right else "---" for is_right in right_aligned]
    return "\n".join(f"| {' | '.join(line)} |" for line in (list(header), ruler, *rows))
