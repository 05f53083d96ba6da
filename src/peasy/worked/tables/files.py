"""Files that hold tables beside text: Jupyter notebooks, Excel workbooks, NumPy arrays."""

import csv
import io
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from peasy.config import parse_json
from peasy.errors import InvalidInput
from peasy.extras import require_extra
from peasy.worked.tables.arrays import name_printed
from peasy.worked.tables.readers import read_markdown
from peasy.worked.tables.sheet import Sheet

_MAX_SHEET_CELLS = 100_000
"""Maximum number of cells of a workbook that hold something."""


def read_notebook(text: str) -> Sheet:
    """Read the tables of a Jupyter notebook: its texts, and the arrays in its code and outputs."""
    try:
        notebook: Any = parse_json(text)
        cells = notebook["cells"]
        lines = "\n\n".join(part for cell in cells for part in _cell_texts(cell))
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("This is not a Jupyter notebook.", hint="Save it again as .ipynb.") from None
    sheet = read_markdown(lines)
    sheet.sequential = True
    return sheet


def _cell_texts(cell: Any) -> Iterator[str]:
    source = _joined(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        printed = _joined(output.get("text", data.get("text/plain", "")))
        if printed and "```" not in printed:
            shown = f"print({source.rstrip().splitlines()[-1].strip(';')})" if data and source.strip() else source
            yield f"```\n{name_printed(printed, shown)}\n```"


def _joined(text: Any) -> str:
    return text if isinstance(text, str) else "".join(text)


def read_workbook(path: Path) -> str:
    """Return the sheets of an Excel workbook as CSV, each under its name if its first cell holds a number.

    Needs openpyxl (the extra `xlsx`). Cells with a formula give the value that was saved with them.
    """
    openpyxl = require_extra("openpyxl")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:
        raise InvalidInput(f"{path.name} is not an Excel workbook: {error}.") from None
    out, count = io.StringIO(), 0
    writer = csv.writer(out, delimiter="\t")
    for sheet in book.worksheets:
        rows = [["" if value is None else value for value in row] for row in sheet.iter_rows(values_only=True)]
        count += sum(cell != "" for row in rows for cell in row)
        if count > _MAX_SHEET_CELLS:
            raise InvalidInput(f"{path.name} has more than {_MAX_SHEET_CELLS:,} cells.", hint="Check a smaller file.")
        if rows and rows[0] and isinstance(rows[0][0], int | float):
            writer.writerow([sheet.title])
        writer.writerows([*_narrow(rows), []])
    return out.getvalue()


def _narrow(rows: list[list[Any]]) -> Iterator[list[Any]]:
    """Yield the rows of a sheet with its tables below each other: those beside each other have empty columns between.

    A first column of labels stays with the tables beside it.
    """
    for is_empty, block in groupby(rows, key=lambda row: not any(cell != "" for cell in row)):
        columns = [] if is_empty else list(zip(*block, strict=False))
        tables = [list(group) for used, group in groupby(columns, lambda column: any(map(str, column))) if used]
        for table in tables:
            yield from [*map(list, zip(*table, strict=True)), []]
        if is_empty:
            yield []


def read_array_file(path: Path) -> str:
    """Return a NumPy .npy file as CSV under the name of the file."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path.name} is not a NumPy array: {error}.") from None
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or array.size > _MAX_SHEET_CELLS:
        raise InvalidInput(f"{path.name} is not a matrix of numbers: {array.dtype} of shape {array.shape}.")
    out = io.StringIO()
    csv.writer(out, delimiter="\t").writerows([[path.stem], *np.atleast_2d(array).tolist()])
    return out.getvalue()
