"""Markdown output with GitHub tables; a matrix follows its name in bold, so that `peasy check` can read it back."""

import re
from collections.abc import Iterable, Iterator, Sequence

from peasy.render import number, sanitize
from peasy.render.figure_tables import PlainPart, plain_parts
from peasy.render.grid import Grid, lay_out, table_text
from peasy.views import document as doc
from peasy.views.document import Document

_MAX_SIZE = 200
"""Maximum number of rows or columns of one table."""

_SPECIAL = re.compile(r"[\\`*{}\[\]<>#|&$~^!]|(?<![^\W_])_|_(?![^\W_])")
_LIST_START = re.compile(r"^(\d+)(?=[.)](?:\s|$))|^(?=[-+=])")


def draw(document: Document) -> str:
    """Render the document as Markdown."""
    blocks = [f"# {_escape_line(document.title)}"]
    for part in plain_parts(document):
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


def _blocks(part: PlainPart, document: Document) -> Iterator[str]:
    match part:
        case doc.Heading(text):
            yield f"## {part.prefix}{_escape_line(text)}"
        case doc.Paragraph(text, tone):
            yield ("> " if tone == "note" else part.sign) + _escape_line(text)
        case doc.Formula(tex):
            yield f"$$\n{tex}\n$$"
        case doc.Arithmetic(title, lines):
            yield f"*{_escape_line(title)}*" if title else ""
            yield "\n".join(f"    {sanitize.one_line(line)}" for line in lines)
        case doc.Matrix():
            yield from _matrix(lay_out(part, document.decimals, _MAX_SIZE))
        case doc.Table():
            shown = table_text(part, document.decimals, _MAX_SIZE)
            if part.title:
                yield f"**{escape(sanitize.token_label(part.title))}**"
            rows = (zip(row, shown.numeric, strict=True) for row in shown.rows)
            body = ([cell if numeric else escape(cell) for cell, numeric in row] for row in rows)
            yield _table(map(escape, shown.header), body, shown.numeric)
            if shown.notice:
                yield f"> {shown.notice}"


def _matrix(grid: Grid) -> Iterator[str]:
    matrix = grid.matrix
    yield f"**{escape(sanitize.token_label(matrix.name))}**"
    if matrix.tex:
        yield f"$$\n{matrix.tex}\n$$"
    if matrix.description:
        yield _escape_line(matrix.description)
    header = map(escape, [grid.corner, *map(grid.column_label, grid.columns)])
    rows = ([escape(grid.row_label(row)), *(_cell(grid, row, column) for column in grid.columns)] for row in grid.rows)
    yield _table(header, rows, [False] + [True] * len(grid.columns))
    if grid.notice:
        yield f"> {grid.notice}"


def _cell(grid: Grid, row: int | None, column: int | None) -> str:
    text = grid.text(row, column)
    # Numbers are not escaped: the escape for the start of a line would precede a minus sign.
    if row is None or column is None or isinstance(grid.cell(row, column), str):
        text = escape(text)
    return f"**{text}**" if text and grid.marked(row, column) else text


def _table(header: Iterable[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[bool]) -> str:
    ruler = ["---:" if is_right else "---" for is_right in right_aligned]
    return "\n".join(f"| {' | '.join(line)} |" for line in (list(header), ruler, *rows))
