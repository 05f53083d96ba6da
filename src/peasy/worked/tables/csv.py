"""CSV reader of notes: blocks separated by empty lines, each with the step in its first cell."""

import csv
import io
from collections.abc import Iterator

from peasy.errors import InvalidInput
from peasy.worked.tables.sheet import SETTINGS, Sheet, split_labels


def read(text: str) -> Sheet:
    """Read the tables and settings of a CSV text, separated by commas, semicolons or tabs.

    >>> read("weights,I,AI\\nI,0.2,0.8").tables[0]
    WrittenTable(table='weights', cells=(('0.2', '0.8'),), rows=('I',), columns=('I', 'AI'), description='')
    """
    sheet = Sheet()
    for block in _blocks(_rows(text)):
        while block and block[0][0].strip().lower().rstrip(":") in SETTINGS and len(block[0]) > 1:
            name, *values = block.pop(0)
            sheet.read_setting(f"{name.rstrip(':')}: {', '.join(filter(None, map(str.strip, values)))}")
        while block and ":" in block[0][0] and len(block[0]) == 1 and sheet.read_setting(block[0][0]):
            block.pop(0)
        if block:
            _add_table(sheet, block)
    return sheet


def _add_table(sheet: Sheet, block: list[list[str]]) -> None:
    (name, *rest), *body = block
    rest = _strip_trailing_empty(rest)
    if rest:  # the name is in the corner cell of the table
        width = max(len(row) for row in block)
        if all(not row[0].strip() for row in body) or not body:
            body, header = [rest, *(row[1:] for row in body)], None
        else:
            header = ["", *rest] if len(rest) + 1 == width else None
    elif body and not body[0][0].strip() and any(body[0]):
        header, *body = body
    else:
        header = None
    sheet.add([name], *split_labels(header, [_strip_trailing_empty(row) if header is None else row for row in body]))


def _rows(text: str) -> list[list[str]]:
    counts = {sign: text[:10_000].count(sign) for sign in ";\t,"}
    separator = ";" if counts[";"] else "\t" if counts["\t"] else ","
    try:
        return list(csv.reader(io.StringIO(text), delimiter=separator))
    except csv.Error as error:
        raise InvalidInput(f"This is not CSV: {error}.") from None


def _blocks(rows: list[list[str]]) -> Iterator[list[list[str]]]:
    block: list[list[str]] = []
    for row in rows:
        if any(cell.strip() for cell in row):
            block.append([_strip_formula_guard(cell) for cell in row])
        elif block:
            yield block
            block = []
    if block:
        yield block


def _strip_trailing_empty(row: list[str]) -> list[str]:
    """Drop empty cells at the end of a row, as spreadsheets leave them."""
    end = max((index + 1 for index, cell in enumerate(row) if cell.strip()), default=0)
    return row[:end]


def _strip_formula_guard(cell: str) -> str:
    """Remove the leading quote that keeps a spreadsheet from evaluating a cell."""
    return cell[1:] if cell[:1] == "'" and cell[1:2] in ("=", "+", "-", "@") else cell
