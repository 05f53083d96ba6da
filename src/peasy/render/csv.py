"""CSV output: all tables of a document, numbers at full precision.

The settings come first; each table is a line with its name, a header, its rows, and an empty line before the next.
"""

import csv
import io
from collections.abc import Iterator

from peasy.render import sanitize
from peasy.render.figure_tables import PlainPart, plain_parts
from peasy.render.number import is_number
from peasy.views import document as doc
from peasy.views.document import Cell, Document


def draw(document: Document) -> str:
    """Render all matrices, tables and figures of the document, one after another."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    settings = [[[escape_formula(text) for text in line.split(": ", 1)] for line in document.settings]]
    blocks = [block for block in [*settings, *(list(_part_rows(part)) for part in plain_parts(document))] if block]
    for index, block in enumerate(blocks):
        if index:
            out.write("\n")
        writer.writerows(block)
    return out.getvalue()


def escape_formula(text: str) -> str:
    """Escape a text that a spreadsheet would evaluate as a formula (CSV injection).

    >>> escape_formula("=cmd|' /C calc'!A0")
    "'=cmd|' /C calc'!A0"
    """
    text = sanitize.escape_control(text)
    return f"'{text}" if text.lstrip(" ")[:1] in {"=", "+", "-", "@", "⇥", "␍", "|", "%"} and text else text


def _part_rows(part: PlainPart) -> Iterator[list[str]]:
    match part:
        case doc.Matrix():
            yield [escape_formula(part.name)]
            yield ["", *map(escape_formula, part.columns)]
            for index, row in enumerate(part.values):
                label = part.rows[index] if index < len(part.rows) else str(index + 1)
                yield [escape_formula(label), *map(_format_cell, row)]
        case doc.Table():
            if part.title:
                yield [escape_formula(part.title)]
            yield [escape_formula(column) for column in part.columns]
            yield from ([_format_cell(cell) for cell in row] for row in part.rows)
        case doc.Arithmetic(title, lines):
            yield from ([escape_formula(line)] for line in (title, *lines))


def _format_cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if not is_number(cell):
        return escape_formula(str(cell))
    number = float(cell) + 0.0  # avoid minus zero
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
