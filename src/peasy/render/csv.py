"""CSV output: all tables of a document, numbers at full precision.

The settings come first; each table is a line with its name, a header, its rows, and an empty line before the next.
"""

import csv
import io
from collections.abc import Iterator

from peasy.render import glyph
from peasy.render.figure import tables_of
from peasy.render.grid import as_table
from peasy.render.number import is_number
from peasy.views.document import (
    Arithmetic,
    Cache,
    Cell,
    Curves,
    Diagram,
    Document,
    Links,
    Maps,
    Matrix,
    Part,
    Plane,
    Table,
)

Line = list[str]


def draw(document: Document) -> str:
    """Render all matrices, tables and figures of the document, one after another."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    settings = [[[guarded(text) for text in line.split(": ", 1)] for line in document.settings]]
    blocks = [block for block in [*settings, *(list(_block(part)) for part in document.parts)] if block]
    for index, block in enumerate(blocks):
        if index:
            out.write("\n")
        writer.writerows(block)
    return out.getvalue()


def guarded(text: str) -> str:
    """Escape a text that a spreadsheet would evaluate as a formula (CSV injection).

    >>> guarded("=cmd|' /C calc'!A0")
    "'=cmd|' /C calc'!A0"
    """
    text = glyph.tame(text)
    return f"'{text}" if text.lstrip(" ")[:1] in {"=", "+", "-", "@", "⇥", "␍", "|", "%"} and text else text


def _block(part: Part) -> Iterator[Line]:
    match part:
        case Matrix():
            yield [guarded(part.name)]
            yield ["", *map(guarded, part.columns)]
            for index, row in enumerate(part.values):
                label = part.rows[index] if index < len(part.rows) else str(index + 1)
                yield [guarded(label), *map(_field, row)]
        case Table():
            if part.title:
                yield [guarded(part.title)]
            yield [guarded(column) for column in part.columns]
            yield from ([_field(cell) for cell in row] for row in part.rows)
        case Plane() | Curves() | Diagram():
            yield from _block(as_table(part))
        case Maps() | Links() | Cache():
            for index, table in enumerate(tables_of(part)):
                yield from [[]] * bool(index)
                yield from _block(table)
        case Arithmetic():
            yield [guarded(part.title)]
            yield from ([guarded(line)] for line in part.lines)


def _field(cell: Cell) -> str:
    if cell is None:
        return ""
    if not is_number(cell):
        return guarded(str(cell))
    number = float(cell) + 0.0  # avoid minus zero
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
