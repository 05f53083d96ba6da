"""Alignment of a written table with the table it names: maps each written cell to a row and column."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from peasy.errors import InvalidInput, did_you_mean
from peasy.parameters import Record
from peasy.worked.attention_graph import head_name
from peasy.worked.checking.cell import CellContent, CellMark, WrittenNumber, read_or_mark
from peasy.worked.checking.step_aliases import BIASES, CAPTIONS, PER_HEAD, PROJECTIONS, parse_caption, table_caption
from peasy.worked.example import Example, WrittenTable
from peasy.worked.intervals import Interval

INPUTS = ("x", "source", *PROJECTIONS, *BIASES)
"""Tables that cannot be derived from others."""

KEY_ROWS = ("source", "key", "value")
"""Tables with one row per key."""

UNKNOWN_ROW = "?"
"""Label of a row whose token is found by its numbers: a printed vector."""

KEY_COLUMNS = ("scores", "scaled", "masked", "powers", "weights", "key_transposed")
"""Tables with one column per key."""

_MASKABLE = ("scores", "scaled", "masked")
"""Tables of scores, in which a masked cell is minus infinity."""

MASKED_SCORE = -1e4
"""A masked score at or below this counts as minus infinity."""

Cell = tuple[int, int]
"""Row and column."""

_Totals = dict[int, str]
_NUMBERED_LABEL = re.compile(r"(?:row|word|token|[xqkvzc])?[\s_]*\{?\(?(\d+)\)?\}?", re.IGNORECASE)
_TOTAL_LABEL = re.compile(r"(?:row\s*|column\s*)?(?:sums?|totals?|summe|somme|suma|Σ|∑|\\sum|\$\\sum\$)", re.IGNORECASE)
_MAX_DECIMALS = 15
FLOAT32_DECIMALS, FLOAT32_TOLERANCE = 7, 2e-6
"""Decimals from which on a number may come from a float32 array, and its relative error after softmax."""


class RowFinding(Record):
    """Mistake of a whole row: its length, its sum, or values out of range."""

    table: str
    row: str
    finding: str
    reason: str
    description: str = ""


@dataclass
class AlignedTable:
    """Written table aligned with its grid. `cells` are the aligned cells, `misfits` the rows that do not fit.

    `row_totals` and `column_totals` are the cells of a column or row headed "sum", by row and by column.
    """

    node: str
    description: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[int, int], CellContent] = field(default_factory=dict)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    misfits: list[tuple[int | None, tuple[str, ...]]] = field(default_factory=list)
    row_totals: dict[int, str] = field(default_factory=dict)
    column_totals: dict[int, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def step(self) -> str:
        """Step name without the head prefix."""
        return self.node.rpartition(".")[2]

    @property
    def caption(self) -> str:
        """Caption for findings."""
        return table_caption(self.node)

    def finding(self, row: str, finding: str, reason: str) -> RowFinding:
        """Return a mistake of a whole row."""
        return RowFinding(self.caption, row, finding, reason, self.description)

    def location(self, row: int, column: int) -> str:
        """Return the location of a cell, for error messages."""
        return f"{self.caption}, row {self.rows[row]}, column {self.columns[column]}"

    def by_row(self) -> dict[int, dict[Cell, CellContent]]:
        """Return the aligned cells grouped by row."""
        rows: dict[int, dict[Cell, CellContent]] = {}
        for cell, content in sorted(self.cells.items(), key=lambda item: item[0]):
            rows.setdefault(cell[0], {})[cell] = content
        return rows

    def values(self) -> tuple[np.ndarray, Interval]:
        """Return the written numbers and their bounds: NaN if missing, 0 or -inf if masked."""
        grid, low, high = (np.full((len(self.rows), len(self.columns)), np.nan) for _ in range(3))
        for cell, content in self.cells.items():
            if isinstance(content, WrittenNumber) and content.value <= MASKED_SCORE and self.step in _MASKABLE:
                grid[cell] = low[cell] = high[cell] = -np.inf
            elif isinstance(content, WrittenNumber):
                grid[cell], low[cell], high[cell] = content.value, content.low, content.high
            elif content is CellMark.MASKED and self.step in ("weights", "powers"):
                grid[cell] = low[cell] = high[cell] = 0.0
            elif content is CellMark.MASKED and self.step in _MASKABLE:
                grid[cell] = low[cell] = high[cell] = -np.inf
        unknown = np.isnan(grid)
        return grid, Interval(np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high))

    @property
    def decimals(self) -> int:
        """Largest number of decimals in the table; 0 for whole numbers and exact expressions."""
        numbers = (content for content in self.cells.values() if isinstance(content, WrittenNumber))
        return max((number.decimals or 0 for number in numbers), default=0)


def table_name(written: WrittenTable, example: Example, present: Sequence[str] = ()) -> str:
    """Return the name of the step that a written table represents."""
    named = parse_caption(written.table)
    if not written.table and parse_caption(written.description):
        raise InvalidInput("No calculation with the tables before it gives these numbers.")
    if not written.table:
        raise InvalidInput("Its caption names no step, and its numbers are those of no calculated table.")
    if named is None:
        hint = did_you_mean(written.table, CAPTIONS.values()) or f"Known: {', '.join(CAPTIONS.values())}."
        raise InvalidInput(f'There is no table "{_truncate(written.table)}" in attention.', hint=hint)
    step, head = named
    if step == "output" and example.w_o is None and "w_o" not in present:
        step = "concat" if example.heads > 1 and head is None else "context"
    if head is None or (example.heads == 1 and head == 1):
        if example.heads > 1 and step in PER_HEAD[4:]:
            message = f'"{_truncate(written.table)}" does not say which head it belongs to.'
            raise InvalidInput(message, hint=f"Write {step} head 1.")
        return step
    if step not in PER_HEAD or not 1 <= head <= example.heads:
        message = f'"{_truncate(written.table)}" names head {head}, but there are {example.heads} heads.'
        raise InvalidInput(message, hint="Set the number of heads: heads = 2.")
    return head_name(step, head)


def align_table(
    written: WrittenTable, node: str, example: Example, shape: tuple[int, ...] | None,
    attention_mask: np.ndarray | None = None, labels: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
) -> AlignedTable:  # fmt: skip
    """Align a written table with the step it represents; `shape` is that table's shape if known.

    `labels` are those of rows and columns, if it is not a table of attention.
    """
    step, caption = node.rpartition(".")[2], table_caption(node)
    written, row_totals, column_totals = split_totals(written, step, (*example.tokens, *example.keys))
    cells = tuple(tuple(str(cell) for cell in row) for row in written.cells)
    if not cells or not any(cells):
        raise InvalidInput(f"{caption} is empty.", hint="Give it at least one row with one cell.")
    if written.rows and len(written.rows) != len(cells):
        raise InvalidInput(f"{caption} has {len(cells)} rows but names {len(written.rows)}.")
    rows, columns = labels or (
        _row_labels(step, example, shape, len(cells)), _column_labels(step, example, written, shape, cells),
    )  # fmt: skip
    has_symbols = step == "context" and any(isinstance(read_or_mark(text), tuple) for row in cells for text in row)
    if has_symbols and max(map(len, cells)) in (1, len(example.keys)):
        columns = example.keys  # `0.4*v_0 | 0.6*v_1`: one column per key, or one cell for the whole sum
    row_indices = list(range(len(cells)))
    if written.rows and (labels or step not in (*PROJECTIONS, *BIASES)):
        row_indices = _match_labels(written.rows, rows, f"{caption}, rows")
    column_indices = None  # in order, unless the columns are labelled
    if written.columns and step in KEY_COLUMNS and all(len(row) <= len(written.columns) for row in cells):
        column_indices = _match_labels(written.columns, columns, f"{caption}, columns")
    placed = AlignedTable(node, written.description, rows, columns)
    for position, (index, row) in enumerate(zip(row_indices, cells, strict=True)):
        if index >= len(rows):
            placed.misfits.append((None, row))
            continue
        row_mask = attention_mask[index] if attention_mask is not None and rows == example.tokens else None
        assigned = _fit_row(row, column_indices, len(columns), row_mask, step)
        if assigned is None:
            placed.misfits.append((index, row))
            continue
        if any((index, column) in placed.cells for column, _ in assigned):
            raise InvalidInput(f"{caption} has two rows for {rows[index]}.", hint="Give each row once.")
        for column, text in assigned:
            placed.cells[index, column], placed.texts[index, column] = read_or_mark(text), text
        if position in row_totals:
            placed.row_totals[index] = row_totals[position]
    order = [index for index in column_indices or range(len(columns)) if index < len(columns)]
    placed.column_totals = {order[at]: text for at, text in column_totals.items() if at < len(order)}
    _check_inputs(placed)
    _read_as_percent(placed)
    _harmonise_decimals(placed)
    _allow_float32(placed)
    return placed


def split_totals(written: WrittenTable, step: str, tokens: Iterable[str]) -> tuple[WrittenTable, _Totals, _Totals]:
    """Separate a last column or row headed "sum" from a table, unless it is one of the tokens."""
    tokens = {token.casefold() for token in tokens}

    def is_total(label: str) -> bool:
        label = label.strip().strip("*_`: ")
        return bool(_TOTAL_LABEL.fullmatch(label)) and label.casefold() not in tokens

    row_totals, column_totals = _Totals(), _Totals()
    rows, columns, cells = written.rows, written.columns, written.cells
    if step == "sums":
        return written, row_totals, column_totals
    if len(columns) > 1 and is_total(columns[-1]):
        row_totals = {at: str(row[-1]) for at, row in enumerate(cells) if len(row) == len(columns)}
        cells, columns = tuple(row[: len(columns) - 1] for row in cells), columns[:-1]
    if len(rows) > 1 and is_total(rows[-1]):
        column_totals = {at: str(text) for at, text in enumerate(cells[-1])}
        row_totals.pop(len(cells) - 1, None)
        cells, rows = cells[:-1], rows[:-1]
    return replace(written, cells=cells, rows=rows, columns=columns), row_totals, column_totals


def _row_labels(step: str, example: Example, shape: tuple[int, ...] | None, count: int) -> tuple[str, ...]:
    if step in BIASES:
        return ("bias",)
    if step in (*PROJECTIONS, "key_transposed"):
        return tuple(map(str, range(shape[0] if shape else count)))
    return example.keys if step in KEY_ROWS else example.tokens


def _column_labels(
    step: str, example: Example, written: WrittenTable, shape: tuple[int, ...] | None,
    cells: tuple[tuple[str, ...], ...],
) -> tuple[str, ...]:  # fmt: skip
    if step in KEY_COLUMNS:
        return example.keys
    if step == "sums":
        return ("0",)
    width = shape[1] if shape else Counter(len(row) for row in cells if row).most_common(1)[0][0]
    if step in ("x", "source") and len(example.features) == width:
        return example.features
    if len(written.columns) == width and len(set(written.columns)) == width and all(written.columns):
        return written.columns
    return tuple(map(str, range(width)))


def _match_labels(labels: Sequence[str], tokens: Sequence[str], where: str) -> list[int]:
    """Return the index of each label, a token or a number; in order if no label matches."""
    indices = _match_by_name([_strip_label(label) for label in labels], tokens)
    if all(index is None for index in indices):
        matches = [_NUMBERED_LABEL.fullmatch(_strip_label(label)) for label in labels]
        if all(matches):
            numbers = [int(match[1]) for match in matches if match]
            first = 0 if 0 in numbers else 1
            if max(numbers) - first < len(tokens):
                return [number - first for number in numbers]
        return list(range(len(labels)))
    for label, index in zip(labels, indices, strict=True):
        if index is None:
            hint = did_you_mean(label, tokens) or f"Tokens: {', '.join(tokens[:12])}{' …' if len(tokens) > 12 else ''}."
            raise InvalidInput(f'{where}: "{_truncate(label)}" is not one of the tokens.', hint=hint)
    return [index for index in indices if index is not None]


def _match_by_name(labels: Sequence[str], tokens: Sequence[str]) -> list[int | None]:
    """Return the token index of each label; repeated tokens are matched in order."""
    indices: list[int | None] = []
    for fold in (str, str.casefold):
        remaining: dict[str, list[int]] = {}
        for index, name in enumerate(tokens):
            remaining.setdefault(fold(name.strip()), []).append(index)
        first_positions = {name: positions[0] for name, positions in remaining.items()}
        indices = []
        for label in labels:
            queue = remaining.get(fold(label))
            indices.append(queue.pop(0) if queue else first_positions.get(fold(label)))
        if None not in indices:
            return indices
    return indices


def _strip_label(label: str) -> str:
    """Strip markup and symbol: `**peasy**(q_1)` -> `peasy`."""
    return re.sub(r"(?<=\S)\s*\((?:[qkvx]_?\d+)\)$", "", label.strip().strip("*:` ").strip())


def _fit_row(
    row: tuple[str, ...], columns: list[int] | None, width: int, row_mask: np.ndarray | None, step: str
) -> list[tuple[int, str]] | None:
    """Return each cell with its column, or None for a row of a wrong length."""
    if columns is not None:
        return [(column, text) for column, text in zip(columns, row, strict=False) if column < width]
    if len(row) == width:
        return list(enumerate(row))
    if row_mask is not None and step in KEY_COLUMNS and len(row) == int(row_mask.sum()) and row_mask[: len(row)].all():
        return [*enumerate(row), *((column, "x") for column in range(len(row), width))]
    if step == "context" and len(row) == 1:
        return [(0, row[0])]
    return None


def _check_inputs(table: AlignedTable) -> None:
    if table.step not in INPUTS:
        return
    if table.misfits:
        message = f"{table.caption} has rows of different lengths, or more rows than there are tokens."
        raise InvalidInput(message, hint="Give every row the same length, and one row per token.")
    for cell, content in table.cells.items():
        if isinstance(content, tuple):
            table.cells[cell] = CellMark.UNREADABLE


def _read_as_percent(table: AlignedTable) -> None:
    """Divide weights by 100 that are in percent without the sign: all rows sum to about 100."""
    if table.step != "weights":
        return
    sums = []
    for cells in table.by_row().values():
        numbers = [content for content in cells.values() if isinstance(content, WrittenNumber)]
        if len(numbers) == len(cells) or CellMark.MASKED in cells.values():
            sums.append(sum(number.value for number in numbers))
    if not sums or not all(97 < total < 103 for total in sums):
        return
    for cell, content in table.cells.items():
        if isinstance(content, WrittenNumber):
            table.cells[cell] = content.times(0.01, 2)
    table.remarks.append(f"{table.caption}: read as percent, without the sign.")


def _harmonise_decimals(table: AlignedTable) -> None:
    """Judge numbers by the decimals of their row or table: a `1` among numbers of four decimals means 1.0000.

    One decimal less is left as it is, 1.4 among numbers of two decimals, and so are three decimals: nobody leaves out
    two zeros after them.
    """
    plain = {
        cell: content
        for cell, content in table.cells.items()
        if isinstance(content, WrittenNumber) and content.decimals is not None
    }
    by_row: dict[int, list[int]] = {}
    for (row, _), number in plain.items():
        if (number.decimals or 0) > 0:
            by_row.setdefault(row, []).append(number.decimals or 0)
    counts = Counter(decimals for row in by_row.values() for decimals in row)
    overall = max(counts, key=lambda number: (counts[number], number), default=0)  # the larger of two equally common
    uniform = {row: used[0] for row, used in by_row.items() if len(used) > 1 and len(set(used)) == 1}
    for cell, number in plain.items():
        own, usual = number.decimals or 0, min(uniform.get(cell[0], overall), _MAX_DECIMALS)
        if own < usual and (own <= 0 or own < min(usual - 1, 3)):
            table.cells[cell] = number.at_decimals(usual)


def _allow_float32(table: AlignedTable) -> None:
    """Widen the bounds of numbers that a program printed with all digits of float32: 0.40000004 for 0.4."""
    for cell, number in table.cells.items():
        if isinstance(number, WrittenNumber) and (number.decimals or 0) >= FLOAT32_DECIMALS:
            half = max(number.high - number.value, FLOAT32_TOLERANCE * abs(number.value))
            table.cells[cell] = replace(number, low=number.value - half, high=number.value + half)


def _truncate(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
