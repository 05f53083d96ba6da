"""Difference of two solutions: which convention or slip turns the tables of one into those of the other.

With the inputs at hand, every known slip is calculated and compared with both. Without them, the two tables are
compared directly: a constant factor, a transposed table, softmax over the other axis, a mask, a bias, rounding.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from peasy.formula.scoring import softmax
from peasy.parameters import Record
from peasy.worked.checking.checker import TableChecker
from peasy.worked.checking.step_aliases import table_caption
from peasy.worked.checking.table import AlignedTable, align_table
from peasy.worked.example import Example
from peasy.worked.label import format_number

_CLOSE = 1e-9


class TableDifference(Record):
    """One table in both solutions: whether it agrees, the largest difference, and what explains it."""

    table: str
    agrees: bool
    largest: float
    reasons: tuple[str, ...]


class _Numbers(Record):
    """Numbers of a table with half a unit of their last decimal, and the checker of their solution."""

    values: np.ndarray
    half: float
    table: AlignedTable
    checker: TableChecker

    def equals(self, values: np.ndarray) -> bool:
        """True if the numbers are a rounding of `values`."""
        if values.shape != self.values.shape:
            return False
        both = np.isfinite(self.values) & np.isfinite(values)
        same_mask = np.array_equal(np.isneginf(self.values), np.isneginf(values))
        scale = 1 + np.abs(values[both])
        return same_mask and bool(np.all(np.abs(self.values - values)[both] <= self.half + _CLOSE * scale))


def compare_notes(mine: Sequence[Example], theirs: Sequence[Example]) -> Iterator[TableDifference]:
    """Yield the difference of every table that both solutions have, in order of dependence."""
    left, right = _tables(mine), _tables(theirs)
    for name, numbers in left.items():
        if name in right:
            yield _compare(name, numbers, right[name])


def _tables(parts: Sequence[Example]) -> dict[str, _Numbers]:
    tables: dict[str, _Numbers] = {}
    for example in parts:
        with np.errstate(all="ignore"):
            checker = TableChecker.best(example)
        for node in checker.graph.nodes:
            for name, written in checker.written:
                if name == node and node not in tables:
                    known = checker.right.get(node)
                    shape = None if known is None else known.point.shape
                    table = align_table(written, node, example, shape, checker.settings.attention_mask)
                    half = 0.5 * 10.0**-table.decimals if table.decimals else 1e-9
                    tables[node] = _Numbers(table.values()[0], half, table, checker)
    return tables


def _compare(name: str, mine: _Numbers, theirs: _Numbers) -> TableDifference:
    caption = table_caption(name)
    if mine.values.shape != theirs.values.shape:
        transposed = mine.values.T.shape == theirs.values.shape
        reason = "One table is the transpose of the other in shape." if transposed else "The shapes differ."
        return TableDifference(caption, False, np.nan, (f"{reason} {mine.values.shape} and {theirs.values.shape}.",))
    finite = np.isfinite(mine.values) & np.isfinite(theirs.values)
    gaps = np.abs(mine.values - theirs.values)[finite]
    largest = float(gaps.max()) if gaps.size else 0.0
    coarse = _Numbers(mine.values, mine.half + theirs.half, mine.table, mine.checker)
    if coarse.equals(theirs.values):
        return TableDifference(caption, True, largest, ())
    with np.errstate(all="ignore"):
        reasons = tuple(dict.fromkeys(_reasons(name, mine, theirs)))
    unknown = "No known convention or slip turns one into the other."
    return TableDifference(caption, False, largest, reasons or (unknown,))


def _reasons(name: str, mine: _Numbers, theirs: _Numbers) -> Iterator[str]:
    found = False
    for reference in (mine, theirs):
        clean = reference.checker.right.get(name)
        if clean is None or clean.route is None:
            continue
        found, unknown = True, list[str]()
        for label, numbers in (("yours", mine), ("the expected table", theirs)):
            if numbers.equals(clean.point):
                yield f"As calculated from the inputs: {label}."
            elif slip := _slip(name, numbers, reference.checker):
                yield f"In {label}, {slip}."
            else:
                unknown.append(label)
        if len(unknown) == 1:
            yield f"No known convention or slip gives the numbers of {unknown[0]}."
        break
    if not found:
        yield from _direct_reasons(mine, theirs)


def _slip(name: str, numbers: _Numbers, checker: TableChecker) -> str:
    for slip in checker.slip_finder().candidates(numbers.table, checker.right[name].point):
        if numbers.equals(slip.values):
            return slip.description
    return ""


_CHANGES: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("the transpose", np.transpose), ("the negative", np.negative), ("the softmax over rows", lambda x: softmax(np, x)),
    ("the softmax over columns", lambda x: softmax(np, x.T).T),
)  # fmt: skip
"""Ways to make one table from another."""


def _direct_reasons(mine: _Numbers, theirs: _Numbers) -> Iterator[str]:
    """Yield what turns one table into the other, from their numbers alone."""
    a, b, half = mine.values, theirs.values, mine.half + 2 * theirs.half
    for name, change in _CHANGES:
        if _Numbers(b, half, mine.table, mine.checker).equals(change(a)):
            yield f"The expected table is {name} of yours."
        elif _Numbers(a, half, mine.table, mine.checker).equals(change(b)):
            yield f"Yours is {name} of the expected table."
    ratio = b / a
    usable = np.isfinite(ratio) & (np.abs(a) > 20 * half)
    if usable.any() and np.ptp(ratio[usable]) <= 1e-3 * abs(ratio[usable].mean()) + 4 * half:
        factor = float(np.median(ratio[usable]))
        yield f"The expected table is yours times {format_number(factor)}{_as_root(factor)}: another scale."
    shift = (b - a) - (b - a)[:1]
    if np.isfinite(shift).all() and np.all(np.abs(shift) <= 4 * half) and len(a) > 1:
        yield "The same row is added to each row: a bias."
    sums = [[np.allclose(table.sum(axis=axis), 1, atol=0.02) for axis in (-1, 0)] for table in (a, b)]
    if sums[0][0] and not sums[1][0] and sums[1][1]:
        yield "The rows of yours sum to 1, in the expected table the columns do: softmax over the other axis."
    above = np.triu(np.ones(a.shape, dtype=bool), 1)
    if above.any() and not b[above].any() and a[above].all():
        yield "The expected table has a causal mask, yours has none."


def _as_root(factor: float) -> str:
    """Return the factor as a root: ` (1/√3)`."""
    for width in range(2, 257):
        for value, text in ((width**-0.5, f"1/√{width}"), (width**0.5, f"√{width}")):
            if abs(factor - value) < 2e-3 * value:
                return f" ({text})"
    return ""
