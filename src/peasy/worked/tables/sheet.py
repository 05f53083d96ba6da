"""Sheet of notes: the tables and settings found in a text, and the example built from them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from peasy import config
from peasy.errors import InvalidInput, did_you_mean
from peasy.worked.checking.cell import CellMark, SymbolicTerm, WrittenNumber, read_cell
from peasy.worked.checking.step_aliases import parse_caption
from peasy.worked.checking.table import KEY_COLUMNS, KEY_ROWS
from peasy.worked.example import Example, WrittenTable

SETTINGS = ("title", "tokens", "source_tokens", "causal", "window", "scoring", "scale", "normalise", "heads")
"""Settings that a line `name: value` may set."""

_MAX_TABLES = 500
"""Maximum number of tables in one file."""

_BY_QUERY = ("x", "query", "scores", "scaled", "masked", "powers", "weights", "context", "output", "concat")
_SETTING_LINE = re.compile(
    r"\s*(?:[-*+]\s+)?[*_`]*([A-Za-z][A-Za-z _]{1,20}?)[*_`]*\s*[:=]\s*[*_`]*\s*(\S.*?)\s*[*_`]*\s*"
)
_SETTING_VALUES = re.compile(r"true|false|yes|no|-?[\d.]+|dot|cosine|scaled[- ]dot|softmax|sum|none", re.IGNORECASE)
_PRODUCT = re.compile(r"Q\s*K\s*(\^|ᵀ)")
_COSINE = re.compile(r"\\lVert|‖|\bcosine\b", re.IGNORECASE)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass
class Sheet:
    """Output of a reader: captioned tables, settings, and captions that name no step."""

    tables: list[WrittenTable] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    head: int | None = None
    inferred: dict[str, Any] = field(default_factory=dict)

    def add(
        self, captions: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]
    ) -> None:
        """Add a table under the first caption that names a step; without one it is ignored. No labels: empty."""
        if len(self.tables) + len(self.ignored) >= _MAX_TABLES:
            raise InvalidInput(f"There are more than {_MAX_TABLES} tables.", hint="Check a shorter file.")
        for caption in captions:
            named = parse_caption(caption)
            if named:
                step, head = named
                head = head or self.head
                name = f"{step} head {head}" if head and step not in ("x", "source", "concat", "output") else step
                self.tables.append(WrittenTable(name, tuple(map(tuple, cells)), tuple(rows), tuple(columns)))
                self.inferred |= _infer_settings(step, captions, cells)
                return
        self.ignored.append(captions[0] if captions else "")

    def read_setting(self, line: str) -> bool:
        """Read a line such as `causal: true` as a setting; raise on a misspelt one; False for any other line."""
        match = _SETTING_LINE.fullmatch(line) if len(line) < 2000 else None
        if not match:
            return False
        name, value = match[1].strip().lower().replace(" ", "_").replace("normalize", "normalise"), match[2].strip()
        if name == "mask" and value.lower() in ("causal", "none"):
            name, value = "causal", str(value.lower() == "causal")
        if name in SETTINGS:
            self.settings[name] = value
            return True
        near = did_you_mean(name, SETTINGS[3:]) if _SETTING_VALUES.fullmatch(value) and len(name) > 3 else None
        if near and parse_caption(name) is None:
            raise InvalidInput(f'"{line.strip()[:60]}": there is no such setting.', hint=near)
        return False

    def example(self, title: str) -> Example:
        """Build the example from tables and settings."""
        if not self.tables:
            captions = f" Captions found: {', '.join(filter(None, self.ignored[:5]))}." if any(self.ignored) else ""
            raise InvalidInput(
                f"No table has a caption that names its step.{captions}",
                hint="Put the step above each table: X, W_Q, W_K, W_V, Q, K, V, scores, scaled, weights, context.",
            )
        settings = {name: _parse_value(name, value) for name, value in self.settings.items()}
        fields: dict[str, Any] = {"title": title, **self.inferred, **settings}
        heads = [named[1] or 1 for table in self.tables if (named := parse_caption(table.table))]
        fields.setdefault("heads", max([1, *heads]))
        fields.setdefault("tokens", list(_infer_tokens(self.tables)))
        keys = _infer_keys(self.tables, len(fields["tokens"]))
        if keys:
            fields.setdefault("source_tokens", list(keys))
        return replace(config.read(Example, fields), written=tuple(self.tables))


def split_labels(
    header: Sequence[str] | None, body: Sequence[Sequence[str]]
) -> tuple[list[list[str]], list[str], list[str]]:
    """Separate cells from the labels of rows and columns: a non-numeric header, and a first column of names.

    >>> split_labels(["", "I", "AI"], [["I", "0.2", "0.8"]])
    ([['0.2', '0.8']], ['I'], ['I', 'AI'])
    """
    rows = [list(row) for row in body]
    if header is not None and _is_numeric_row(header):
        rows, header = [list(header), *rows], None  # a header of numbers is the first row
    corner = "" if header is None else header[0]
    labelled = any(row and not _is_cell(row[0]) for row in rows)
    if header is not None and len(header) > 1:
        labelled |= not corner.strip() or "\\" in corner or "↓" in corner
    columns = [text.strip() for text in header or ()]
    if not labelled:
        return rows, [], columns
    return [row[1:] for row in rows], [row[0].strip() if row else "" for row in rows], columns[1:]


def _infer_settings(step: str, captions: Sequence[str], cells: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Infer settings from a table: the formula above scores or weights, and crosses above the diagonal.

    An explicit setting line takes precedence.
    """
    settings: dict[str, Any] = {}
    if step in ("masked", "weights") and len(cells) > 1:
        short = [row for row in cells if max(map(len, row), default=0) < 50]
        hidden = [[read_cell(text) is CellMark.MASKED for text in row] for row in short]
        if hidden == [[column > row for column in range(len(cells))] for row in range(len(cells))]:
            settings["causal"] = True
    formulas = [caption for caption in captions if "softmax" in caption and _PRODUCT.search(caption)]
    if step == "scores" and any(_COSINE.search(caption) for caption in captions):
        settings["scoring"] = "cosine"
    elif step == "weights" and formulas and not re.search(r"sqrt|√|/", formulas[0]):
        settings["scoring"] = "dot"
    return settings


def _is_numeric_row(header: Sequence[str]) -> bool:
    """True if a header is a row of numbers, not column numbers such as 0, 1, 2 or 1, 2, 3."""
    name, *rest = header
    if not name.strip() or re.search(r"\\\s|[↓→]", name) or not all(text.strip() and _is_cell(text) for text in rest):
        return False
    column_numbers = [[str(first + index) for index in range(len(rest))] for first in (0, 1)]
    return _is_cell(name) or (bool(rest) and [text.strip() for text in rest] not in column_numbers)


def _is_cell(text: str) -> bool:
    """True if a text can be a cell (number, mask sign, blank, symbolic product) and not a row label."""
    try:
        content = read_cell(text)
    except InvalidInput:
        return False
    names = [term for term in content if isinstance(term, SymbolicTerm)] if isinstance(content, tuple) else []
    return all(len(term.names) > 1 or isinstance(term.factor, WrittenNumber) for term in names)


def _parse_value(name: str, text: str) -> Any:
    if name == "causal":
        return _BOOLEANS.get(text.lower(), text)
    if name in ("heads", "window") and re.fullmatch(r"\d{1,6}", text):
        return int(text)
    if name == "scale":
        content = read_cell(text, "scale")
        return content.value if isinstance(content, WrittenNumber) else text
    if name in ("tokens", "source_tokens"):
        return [token.strip().strip("\"'") for token in (text.strip("[]").split(",") if "," in text else text.split())]
    return text.lower().replace(" ", "-") if name in ("scoring", "normalise") else text


def _step_of(table: WrittenTable) -> str:
    named = parse_caption(table.table)
    assert named is not None, "only tables with a known step are kept"
    return named[0]


def _infer_tokens(tables: Sequence[WrittenTable]) -> tuple[str, ...]:
    """Infer the tokens from the row labels of X, from labels of another table, or number them."""
    by_query = [table for table in tables if _step_of(table) in _BY_QUERY]
    inputs = [table for table in by_query if _step_of(table) == "x"]
    count = max((len(table.cells) for table in inputs or by_query), default=0)
    by_key = [table for table in tables if _step_of(table) in KEY_COLUMNS and table.columns]
    for table in by_key:
        if not inputs and len(table.columns) > count and set(table.rows) <= set(table.columns):
            return table.columns
    for table in by_query:
        if len(table.rows) == count and all(table.rows):
            return table.rows
    for table in by_key:
        if len(table.columns) == count and all(table.columns):
            return table.columns
    rest = max((len(table.cells) for table in tables if _step_of(table) in KEY_ROWS), default=1)
    return tuple(f"x_{index + 1}" for index in range(count or rest))


def _infer_keys(tables: Sequence[WrittenTable], queries: int) -> tuple[str, ...]:
    """Infer the source tokens (keys) if they differ from the queries' tokens."""
    by_key = [table for table in tables if _step_of(table) in KEY_ROWS]
    source = [table for table in by_key if _step_of(table) == "source"]
    has_inputs = any(_step_of(table) == "x" for table in tables)
    if not source and (has_inputs or all(len(table.cells) <= queries for table in by_key)):
        return ()
    count = max(len(table.cells) for table in source or by_key)
    labelled = [table.rows for table in by_key if len(table.rows) == count and all(table.rows)]
    return labelled[0] if labelled else tuple(f"k_{index + 1}" for index in range(count))
