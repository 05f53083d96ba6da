"""Hand-written notes: a file of text, a notebook, a workbook or an array, read as examples with written tables."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import numpy as np

from peasy import config
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.extras import require_extra
from peasy.parameters import Record
from peasy.worked.checking.calculations import find_calculations
from peasy.worked.checking.recognition import recognise
from peasy.worked.example import Example, library_files
from peasy.worked.tables.arrays import name_printed
from peasy.worked.tables.html_notes import read_html
from peasy.worked.tables.program_output import group_calculations
from peasy.worked.tables.readers import read_csv, read_latex, read_markdown, read_plain_text
from peasy.worked.tables.sheet import Sheet

_MAX_BYTES = 4_000_000
"""Maximum size of a file of notes in bytes."""

_MAX_SHEET_CELLS = 100_000
"""Maximum number of cells of a workbook that hold something."""


def read_notebook(text: str) -> Sheet:
    """Read the tables of a Jupyter notebook: its texts, and the arrays in its code and outputs."""
    try:
        notebook = config.parse_json(text)
        lines = "\n\n".join(part for cell in notebook["cells"] for part in _cell_texts(cell))
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("This is not a Jupyter notebook.", hint="Save it again as .ipynb.") from None
    sheet = read_markdown(lines)
    sheet.sequential = True
    sheet.adjacent.clear()  # a program may calculate anything between two prints
    return sheet


def _cell_texts(cell: config.JsonDict) -> Iterator[str]:
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


def _joined(text: str | list[str]) -> str:
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


def _narrow(rows: list[list[object]]) -> Iterator[list[object]]:
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


READERS: dict[str, Callable[[str], Sheet]] = {
    ".md": read_markdown, ".markdown": read_markdown, ".qmd": read_markdown, ".mdx": read_markdown,
    ".txt": read_plain_text, ".tex": read_latex, ".csv": read_csv, ".tsv": read_csv, ".ipynb": read_notebook,
    ".html": read_html, ".htm": read_html,
}  # fmt: skip
"""Reader of each file type; .toml and .json are read as examples directly, .xlsx as CSV of its sheets."""

CHECKED_SUFFIXES = (".toml", ".json", *READERS, ".xlsx", ".npy")
"""Types of files that can be checked."""
_SCALE = re.compile(r"sqrt|√|scal|d_\{?k|d_key|\bdk\b|head_dim|\*\*\s*-?0\.5|/ ?\d", re.IGNORECASE)
"""Signs that a text divides scores by √d_k."""
_PLAIN_SCORES = re.compile(r"softmax\}?\s*(?:\\left)?[({]\s*S\s*(?:\\right)?[)}]", re.IGNORECASE)
"""Weights of scores that are not divided: S = QKᵀ, A = softmax(S)."""


class Notes(Record):
    """Tables of a document. Each part has its own tokens, inputs and settings; most notes have one part."""

    title: str
    parts: tuple[Example, ...]
    source: str = ""
    description: str = ""
    text: str = ""
    """Running text whose calculations are checked beside the tables."""


def read_notes(path: str | Path) -> Notes:
    """Read notes from a file, or from the library by name."""
    path = Path(path)
    library = library_files("as-written")
    if not path.exists() and path.name.removesuffix(".toml") in library and len(path.parts) == 1:
        path = library[path.name.removesuffix(".toml")]
    suffix = path.suffix.lower()
    if suffix not in CHECKED_SUFFIXES:
        _require_file(path)
        message = f"{path.name} has a file type that cannot be checked."
        raise InvalidInput(message, hint=f"File types: {', '.join(CHECKED_SUFFIXES)}.")
    if suffix in (".xlsx", ".npy"):
        _require_file(path)
        return read_text(read_workbook(path) if suffix == ".xlsx" else read_array_file(path), ".csv", path.name)
    text = _read_file(path)
    if suffix in (".toml", ".json"):
        return _notes_from_data(config.load(path), path.name)
    return read_text(text, suffix, path.name)


def read_text(text: str, suffix: str = ".md", name: str = "notes") -> Notes:
    """Read notes from a text; `suffix` is its file type."""
    sheet = READERS[suffix](text)
    title = str(sheet.settings.get("title", Path(name).stem))
    try:
        has_tables = any(table.table for table in sheet.tables)
        if not has_tables and any(each.verdict() for each in find_calculations(sheet.text)):
            return Notes(title, (), text=sheet.text)
        if sheet.sequential and has_tables and sheet.network is None:
            return Notes(title, group_calculations(sheet, title), text=sheet.text)
        examples = sheet.examples(title)
        mentions_scale = bool(_SCALE.search(text)) and not _PLAIN_SCORES.search(text)
        mentions_scale &= len(examples) == 1  # of several, one may be without a scale
        parts = (example if example.steps else recognise(example, mentions_scale) for example in examples)
        return Notes(title, tuple(parts), text=sheet.text)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error.message}", hint=error.hint) from None


def as_written_names() -> tuple[str, ...]:
    """Return the names of the library's documents as their authors wrote them."""
    return tuple(library_files("as-written"))


def _require_file(path: Path) -> None:
    if not path.exists():
        siblings: list[Path] = []
        with suppress(OSError):
            siblings = [near for near in path.parent.iterdir() if near.suffix in CHECKED_SUFFIXES][:1000]
        near = did_you_mean(path.name, [*(sibling.name for sibling in siblings), *library_files("as-written")])
        message = f"There is no file {path}."
        raise NotFound(message, hint=near or "peasy check takes a .toml, .md, .tex, .html or .csv file.")
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file.")


def _read_file(path: Path) -> str:
    _require_file(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            message = f"{path.name} has {path.stat().st_size:,} bytes."
            raise InvalidInput(message, hint=f"Notes have at most {_MAX_BYTES:,}.")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path.name} is not UTF-8 text.") from None
    except OSError as error:
        raise InvalidInput(f"{path.name} cannot be read: {error.strerror}.") from None
    if "\0" in text:
        raise InvalidInput(f"{path.name} is not text: it contains NUL bytes.")
    if not text.strip():
        message = f"{path.name} is empty."
        raise InvalidInput(message, hint="Notes contain tables with the step above each: X, W_Q, scores ...")
    return text


def _notes_from_data(data: object, name: str) -> Notes:
    if isinstance(data, dict):
        data = {"title": Path(name).stem} | data
    if isinstance(data, dict) and "parts" in data:
        parts = data["parts"] if isinstance(data["parts"], list) else []
        data = data | {"parts": [_expand_written(part) for part in parts]}
        notes = config.read(Notes, data, where=name)
    else:
        example = config.read(Example, _expand_written(data), where=name)
        notes = Notes(example.title, (example,), example.source, example.description)
    if not any(part.written for part in notes.parts):
        raise InvalidInput(f"{name} has no written tables to check.", hint='Add them: [[written]] table = "scores" ...')
    return notes


def _expand_written(example: object) -> object:
    """Expand the short form `[written] scores = [...]` to the long form, a list of tables."""
    if not isinstance(example, dict) or not isinstance(example.get("written"), dict):
        return example
    return example | {"written": [{"table": table, "cells": cells} for table, cells in example["written"].items()]}
