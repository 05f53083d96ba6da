"""Recognition of tables by their numbers, and of the scale that an author leaves out.

A table whose caption says nothing is the one whose calculated numbers it has; a table called "scores" whose numbers
are the weights is the weights. Printed vectors find their row. Notes that never mention a scale may use plain dot
products.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from peasy.worked.checking.cell import WrittenNumber, read_number
from peasy.worked.checking.checker import TableChecker
from peasy.worked.checking.readings import TableReading
from peasy.worked.checking.step_aliases import AMBIGUOUS, PER_HEAD, parse_caption
from peasy.worked.checking.table import UNKNOWN_ROW
from peasy.worked.example import Example, WrittenTable

_ENOUGH = 0.75
"""Share of cells that must agree for a table to be recognised by its numbers."""

_HALF = 0.5
"""Share of cells that agree from which on a table has the name of its caption, if another table has the other name."""

_MAX_ROWS = 200
_ZERO = re.compile(r"0(?:[.,]0*)?")
NOT_SCALED = "The scores are not divided by √d_k: plain dot products."


def recognise(example: Example, mentions_scale: bool = True) -> Example:
    """Return the example with tables named that can be recognised by their numbers, and with scale and mask found.

    Plain dot products are tried if nothing in the notes mentions a scale, a causal mask if the weights above the
    diagonal are zero. The settings with the fewest wrong cells are kept.
    """
    candidates = [example]
    mentions_scale |= any(table.table.startswith("scaled") for table in example.written)
    if not mentions_scale and example.scoring == "scaled-dot" and example.scale is None:
        candidates.append(replace(example, scoring="dot", note=NOT_SCALED))
    if not example.causal and any(_is_lower_triangle(table) for table in example.written):
        candidates += [replace(candidate, causal=True) for candidate in candidates]
    named = [name_tables(candidate) for candidate in candidates]
    if len(named) == 1:
        return named[0]
    with np.errstate(all="ignore"):
        return min(named, key=_count_mistakes)


def _count_mistakes(example: Example) -> tuple[int, int]:
    checker = TableChecker.best(example, names_slips=False)
    return sum(cell.verdict == "wrong" for cell in checker.cells), len(checker.unread)


def _is_lower_triangle(table: WrittenTable) -> bool:
    """True if all numbers above the diagonal of a square table are zero; others may be zero by rounding."""
    size = len(table.cells)
    if not 1 < size <= _MAX_ROWS or any(len(row) != size for row in table.cells):
        return False
    above = (text for row, texts in enumerate(table.cells) for text in texts[row + 1 :])
    return all(_ZERO.fullmatch(str(text).strip()) for text in above)


def name_tables(example: Example, only_last: bool = False) -> Example:
    """Return the example with tables renamed to the step whose numbers they have; `only_last`, the others are named."""
    new = example.written[-1:] if only_last else example.written
    doubtful = [table for table in new if _alternatives(table) or UNKNOWN_ROW in table.rows]
    unnamed = [table for table in new if parse_caption(table.table) is None]
    if not doubtful and not unnamed:
        return example
    sure = tuple(t for t in example.written if parse_caption(t.table) and UNKNOWN_ROW not in t.rows)
    right = _right_tables(replace(example, written=sure))
    renamed = [_rename(table, right, example) for table in example.written]
    found = {table.rows for old, table in zip(example.written, renamed, strict=True) if old.rows != table.rows}
    if len(found) == 1 and () not in found:  # vectors of one token: those with other numbers are its, too
        renamed = [
            replace(old, rows=next(iter(found))) if UNKNOWN_ROW in old.rows and not table.table else table
            for old, table in zip(example.written, renamed, strict=True)
        ]
    named = replace(example, written=tuple(renamed))
    is_open = named != example and not only_last and any(parse_caption(table.table) is None for table in renamed)
    return name_tables(named) if is_open else named  # one more may follow from those that have a name now


@lru_cache(maxsize=64)
def _right_tables(example: Example) -> dict[str, TableReading]:
    """Return the calculated tables of an example; kept, because many tables are compared with the same ones."""
    with np.errstate(all="ignore"):
        return TableChecker(example, names_slips=False).run().right


def _alternatives(table: WrittenTable) -> tuple[str, ...]:
    named = parse_caption(table.table)
    return AMBIGUOUS.get(named[0], ()) if named else ()


def _rename(table: WrittenTable, right: dict[str, TableReading], example: Example) -> WrittenTable:
    named = parse_caption(table.table)
    prefix = f"head-{named[1]}." if named and named[1] and example.heads > 1 else ""
    usual = f"{prefix}{named[0]}" if named else ""
    if UNKNOWN_ROW in table.rows:
        return _find_row(table, usual, right, example)
    if named is None:
        candidates: Sequence[str] = [name for name in right if right[name].route is not None or name in right]
        threshold = _ENOUGH
    else:
        candidates, threshold = [prefix + step for step in _alternatives(table)], 0.9 if usual in right else 1.0
        written = {other.table for other in example.written}
        if named[0] in ("context", "output"):  # V may be such that weights and context are equal
            candidates = [name for name in candidates if name != f"{prefix}weights" or name not in written]
        if _agreement(table, right.get(usual)) >= _HALF:
            candidates = [name for name in candidates if name not in written]
    calculated = {name for name, reading in right.items() if reading.route is not None}
    best = max(candidates, key=lambda name: (_agreement(table, right.get(name)), name in calculated), default="")
    if not best or _agreement(table, right.get(best)) < threshold:
        return table
    if usual in right and not _is_nearer(table, right[best], right[usual]):
        return table
    step, head = best.rpartition(".")[2], best.partition(".")[0].removeprefix("head-")
    name = f"{step} head {head}" if "." in best and step in PER_HEAD else step
    return replace(table, table=name, description=table.description or table.table)


def _find_row(table: WrittenTable, usual: str, right: dict[str, TableReading], example: Example) -> WrittenTable:
    """Give a printed vector the row whose numbers it has; without one it stays unknown."""
    reading = right.get(usual)
    if reading is None:
        return replace(table, rows=()) if len(example.tokens) == 1 else replace(table, table="")
    labels = example.keys if usual in ("key", "value") else example.tokens
    for row in range(min(len(labels), reading.point.shape[0])):
        part = TableReading(reading.point[row : row + 1], reading.bounds[row : row + 1], True)
        if _agreement(replace(table, rows=()), part) == 1:
            return replace(table, rows=(labels[row],))
    return replace(table, rows=()) if len(labels) == 1 else replace(table, table="")


def _is_nearer(table: WrittenTable, found: TableReading, usual: TableReading) -> bool:
    """True if the numbers that tell two readings apart are those of `found`: scores of 0 are 0 when scaled, too."""
    if found.point.shape != usual.point.shape:
        return True
    apart = (found.bounds.low > usual.bounds.high) | (found.bounds.high < usual.bounds.low)
    hits = [int(np.sum(_hits(table, reading)[apart[_numbers(table)[0]]])) for reading in (found, usual)]
    return hits[0] > hits[1]


def _agreement(table: WrittenTable, reading: TableReading | None) -> float:
    """Return the share of the table's numbers that a reading has in the same place; 0 if the shape differs."""
    if reading is None or reading.point.shape != (len(table.cells), max(map(len, table.cells), default=0)):
        return 0.0
    _, numbers = _numbers(table)
    return float(np.mean(_hits(table, reading))) if len({number.value for number in numbers}) > 1 else 0.0


def _hits(table: WrittenTable, reading: TableReading) -> np.ndarray:
    """Return for each number of a table whether the reading has it in the same place."""
    cells, numbers = _numbers(table)
    bounds = zip(reading.bounds.low[cells].tolist(), reading.bounds.high[cells].tolist(), strict=True)
    return np.array([number.may_be(*ends) for number, ends in zip(numbers, bounds, strict=True)], dtype=np.bool)


@lru_cache(maxsize=512)
def _numbers(table: WrittenTable) -> tuple[tuple[list[int], list[int]], tuple[WrittenNumber, ...]]:
    """Return the numbers of a table, after their rows and columns."""
    found = [
        (row, column, number)
        for row, texts in enumerate(table.cells)
        for column, text in enumerate(texts)
        if (number := read_number(str(text)))
    ]
    return ([row for row, _, _ in found], [column for _, column, _ in found]), tuple(number for *_, number in found)
