"""Excel output (.xlsx): all tables of a document on one sheet; cells that are calculated are live formulas.

Given numbers are blue: a change of one of them changes every number that follows from it. A formula is written with its
value, so that programs that only read values see it, too. Text is never a formula.
"""

import io
import math
from datetime import datetime
from typing import Any

from peasy.extras import require_extra
from peasy.render import sanitize, tex
from peasy.render.figure_tables import PlainPart, plain_parts
from peasy.render.number import is_number
from peasy.views import document as doc
from peasy.views.document import Cell, Document

_MAX_FORMULA = 8_000
"""Maximum length of a formula; Excel's own limit is 8,192 characters."""

_MAX_TEXT = 32_000
"""Maximum length of a text in one cell."""


def draw(document: Document) -> bytes:
    """Render the workbook; needs XlsxWriter (the extra `xlsx`)."""
    writer = require_extra("xlsxwriter")
    out = io.BytesIO()
    with writer.Workbook(out, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        book.set_properties({"created": datetime(2000, 1, 1)})
        _SheetWriter(book, document).write()
    return out.getvalue()


class _SheetWriter:
    """Writes the parts of a document below one another."""

    def __init__(self, book: Any, document: Document) -> None:
        self.document, self.sheet = document, book.add_worksheet("peasy")
        self.cell_name = require_extra("xlsxwriter.utility").xl_rowcol_to_cell
        number = "0" + (f".{'0' * document.decimals}" if document.decimals else "")
        self.formats = {
            "title": book.add_format({"bold": True, "font_size": 14}), "bold": book.add_format({"bold": True}),
            "given": book.add_format({"font_color": "#0B5CAD", "num_format": number}),
            "computed": book.add_format({"num_format": number}), "text": None,
        }  # fmt: skip
        self.parts = list(plain_parts(document))
        row, self.places = 4 + len(document.settings), dict[str, int]()
        for part in self.parts:  # the first row of the numbers of every matrix; the first one of a name is referred to
            if isinstance(part, doc.Matrix):
                self.places.setdefault(part.name, row + 2)
            row += len(_rows(part)) + 1
        self.sheet.set_column(0, 0, 24)
        self.sheet.set_column(1, 60, max(10, document.decimals + 6))

    def write(self) -> None:
        """Write the title, the settings and all parts."""
        live = any(isinstance(part, doc.Matrix) and part.formula is not None for part in self.parts)
        note = "Blue numbers are given: change one, and all others are calculated again." if live else ""
        self._text(0, 0, self.document.title, "title")
        self._text(1, 0, note)
        for index, line in enumerate(self.document.settings):
            for column, text in enumerate(line.split(": ", 1)):
                self._text(3 + index, column, text)
        row = 4 + len(self.document.settings)
        for part in self.parts:
            if isinstance(part, doc.Matrix):
                self._matrix(part, row)
            else:
                for offset, cells in enumerate(_rows(part)):
                    for column, cell in enumerate(cells):
                        self._cell(row + offset, column, cell, "bold" if isinstance(part, doc.Heading) else "text")
            row += len(_rows(part)) + 1

    def _matrix(self, matrix: doc.Matrix, row: int) -> None:
        formula = tex.to_plain_text(matrix.tex) if matrix.tex else ""
        about = "\n".join(filter(None, (formula, matrix.description)))
        self._text(row, 0, matrix.name, "bold")
        if about:
            self.sheet.write_comment(row, 0, sanitize.escape_control(about)[:_MAX_TEXT], {"x_scale": 3})
        for column, label in enumerate(matrix.columns):
            self._text(row + 1, column + 1, label, "bold")
        for index, cells in enumerate(matrix.values):
            self._text(row + 2 + index, 0, matrix.rows[index])
            for column, cell in enumerate(cells):
                written = None if matrix.formula is None else matrix.formula(index, column, self._address)
                if written and len(written) < _MAX_FORMULA and is_number(cell) and math.isfinite(float(cell or 0)):
                    place = row + 2 + index, column + 1
                    self.sheet.write_formula(*place, f"={written}", self.formats["computed"], cell)
                else:
                    self._cell(row + 2 + index, column + 1, cell, "given" if matrix.formula is None else "computed")

    def _address(self, name: str, row: int, column: int) -> str:
        """Return the address of a cell of a matrix: B7."""
        return str(self.cell_name(self.places[name] + row, column + 1))

    def _cell(self, row: int, column: int, cell: Cell, style: str) -> None:
        if is_number(cell) and math.isfinite(number := float(cell or 0)):
            self.sheet.write_number(row, column, number, self.formats[style])
        elif cell is not None:
            signs = {math.inf: "∞", -math.inf: "-∞"}
            self._text(row, column, signs.get(cell, "") if isinstance(cell, float) else str(cell), style)

    def _text(self, row: int, column: int, text: str, style: str = "text") -> None:
        if text:
            self.sheet.write_string(row, column, sanitize.escape_control(text)[:_MAX_TEXT], self.formats[style])


def _rows(part: PlainPart) -> list[list[Cell]]:
    """Return the cells of a part; those of a matrix are written by `_matrix`."""
    match part:
        case doc.Heading(text):
            return [[part.prefix + text]]
        case doc.Paragraph(text):
            return [[part.sign + text]]
        case doc.Formula(source):
            return [[tex.to_plain_text(source)]]
        case doc.Arithmetic(title, lines):
            return [[line] for line in (title, *lines)]
        case doc.Matrix():
            return [[] for _ in range(2 + len(part.values))]
        case doc.Table():
            titles: list[list[Cell]] = [[part.title]] if part.title else []
            return [*titles, list(part.columns), *map(list, part.rows)]
