"""Readings of a table: the numbers it may hold, as bounds, without and with the author's earlier mistakes.

The clean reading of a table holds every number that the given matrices allow at their printed precision, whether the
author went on with all digits or with the rounded numbers of an earlier table. A mistaken reading goes on from a
table as it was written. Both come from the same graph of steps, evaluated on intervals.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from peasy.errors import InvalidInput, PeasyError
from peasy.parameters import Record
from peasy.worked.graph import GraphNode, Route
from peasy.worked.intervals import Interval
from peasy.worked.label import format_number

Readings = list["TableReading"]
_MAX_MISTAKEN = 8
"""Maximum number of mistaken readings kept per table."""

_KEPT_DIGITS = 0.1
"""Share of half a unit by which a number may differ that was kept on a calculator with one more digit than written."""


class TableReading(Record):
    """One reading of a table: `point` are its numbers as shown, `bounds` all that they may be.

    `clean` if it contains no mistake; else `written` is the table whose mistake it contains, if it is that table.
    """

    point: np.ndarray
    bounds: Interval
    clean: bool
    route: Route | None = None
    parents: tuple["TableReading", ...] = ()
    written: str = ""

    @property
    def mistaken_table(self) -> str:
        """Caption of the table whose mistake this reading contains."""
        if self.clean or self.written:
            return self.written
        return next(parent.mistaken_table for parent in self.parents if not parent.clean)

    def points_before(self) -> dict[str, np.ndarray]:
        """Return the numbers of the tables that this reading is calculated from, by node."""
        points: dict[str, np.ndarray] = {}
        for name, parent in zip(self.route.inputs if self.route else (), self.parents, strict=True):
            points |= parent.points_before() | {name: parent.point}
        return points

    def knows(self, row: int, column: int) -> bool:
        """True if the table has this cell, and its number is bounded."""
        rows, columns = self.bounds.shape
        return row < rows and column < columns and bool(self.bounds.is_known[row, column])

    def summary(self, row: int, column: int) -> str:
        """Return the arithmetic of one cell: `1·1 + 1·1 = 2`."""
        number = format_number(float(self.point[row, column]))
        arithmetic = self.route.step.summary(row, column, [each.point for each in self.parents]) if self.route else ""
        return f"{arithmetic} = {number}" if arithmetic else f"It is given as {number}"

    def terms(self, row: int, column: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the factors of the products that a cell is the sum of, if it is one."""
        if self.route is None:
            return None
        return self.route.step.terms(row, column, [each.point for each in self.parents])


def derive_readings(node: GraphNode, readings: Mapping[str, Readings]) -> tuple[Readings, PeasyError | None]:
    """Return the readings of a node that follow from those of its inputs, the clean one first.

    Also return the error of a route that could not be computed, if no other route could.
    """
    clean: TableReading | None = None
    mistaken: list[TableReading] = []
    failure: PeasyError | None = None
    for route in node.routes:
        for parents in product(*(readings.get(parent, ()) for parent in route.inputs)):
            try:
                derived = _derive(route, parents)
            except PeasyError as error:
                failure = failure or error
                continue
            except ValueError:  # of NumPy
                failure = failure or InvalidInput(f"The shapes of {', '.join(route.inputs)} do not fit together.")
                continue
            if not derived.clean:
                mistaken.append(derived)
            elif clean is None:
                clean = derived
            else:
                clean = _merge(clean, derived)
    distinct = [*([clean] if clean else []), *_distinct(mistaken)]
    return distinct, None if distinct else failure


def _derive(route: Route, parents: tuple[TableReading, ...]) -> TableReading:
    bounds = route.step.bounds(*(parent.bounds for parent in parents))
    point = np.asarray(route.step.forward(np, *(parent.point for parent in parents)), float)
    point = np.where(np.isnan(point), bounds.middle, point)
    return TableReading(point, bounds, all(parent.clean for parent in parents), route, parents)


def _merge(first: TableReading, other: TableReading) -> TableReading:
    """Return the first reading with the bounds of both; what one does not know is taken from the other."""
    if first.bounds.shape != other.bounds.shape:
        return first
    known, other_known = first.bounds.is_known, other.bounds.is_known
    hull = first.bounds.hull(other.bounds)
    ends = [
        np.where(known & other_known, both, np.where(other_known, theirs, mine))
        for both, mine, theirs in (
            (hull.low, first.bounds.low, other.bounds.low),
            (hull.high, first.bounds.high, other.bounds.high),
        )
    ]
    point = np.where(known, first.point, other.point)
    if not known.all() and other_known.all():
        return TableReading(other.point, Interval(*ends), True, other.route, other.parents)
    return TableReading(point, Interval(*ends), True, first.route, first.parents)


def _distinct(readings: Sequence[TableReading]) -> list[TableReading]:
    distinct: list[TableReading] = []
    for reading in readings:
        if len(distinct) == _MAX_MISTAKEN:
            break
        if not any(np.array_equal(reading.point, other.point, equal_nan=True) for other in distinct):
            distinct.append(reading)
    return distinct


def add_written(
    readings: Sequence[TableReading], written: Interval, numbers: np.ndarray, wrong: np.ndarray, caption: str
) -> list[TableReading]:
    """Return the readings of a table after its author wrote it.

    `numbers` are the written ones, NaN if missing, and `written` their bounds. A right number joins the clean
    reading: the author may go on with it or with the digits kept on a calculator. If cells are wrong, another reading
    has them as written.
    """
    clean = next((reading for reading in readings if reading.clean), None)
    is_whole = np.all(np.isnan(numbers) | (numbers == np.round(numbers)))
    if clean is not None and np.array_equal(clean.bounds.low, np.round(clean.bounds.high)) and is_whole:
        written = Interval.exact(numbers)  # sums of products of whole numbers
    mistaken = [reading for reading in readings if not reading.clean]
    if np.isnan(numbers).all() or (clean is not None and clean.bounds.shape != written.shape):
        return list(readings)
    if clean is None:
        unknown = TableReading(numbers, written, True, written=caption)
        if not wrong.any():
            return [unknown, *mistaken]
        doubtful = Interval(np.where(wrong, -np.inf, written.low), np.where(wrong, np.inf, written.high))
        corrected = TableReading(np.where(wrong, np.nan, numbers), doubtful, True)
        return [corrected, TableReading(numbers, written, False, written=caption), *mistaken]
    as_written = np.where(np.isnan(numbers) | wrong, clean.point, numbers)
    half = np.where(np.isnan(numbers), 0.0, written.width / 2)
    spare = np.where(np.abs(clean.point - as_written) > 1e-9, _KEPT_DIGITS * half, 0.0)
    spare = np.where(np.isfinite(spare), spare, 0.0)
    kept = Interval(clean.bounds.low - spare, clean.bounds.high + spare)
    # The number behind a right one rounds to it, or was cut to it: at most a unit away.
    right = ~np.isnan(numbers) & ~wrong & np.isfinite(half)
    low = np.where(right, np.maximum(kept.low, as_written - 2 * half), kept.low)
    high = np.where(right, np.minimum(kept.high, as_written + 2 * half), kept.high)
    kept = Interval(low, high).hull(Interval(as_written, as_written))
    unknown_cells = ~clean.bounds.is_known & ~np.isnan(numbers)
    bounds = Interval(np.where(unknown_cells, written.low, kept.low), np.where(unknown_cells, written.high, kept.high))
    point = np.where(unknown_cells, numbers, clean.point)
    joined = TableReading(point, bounds, True, clean.route, clean.parents)
    if not wrong.any():
        return [joined, *mistaken]
    mixed = Interval(np.where(wrong, written.low, bounds.low), np.where(wrong, written.high, bounds.high))
    slipped = TableReading(np.where(wrong, numbers, as_written), mixed, False, written=caption)
    return [joined, slipped, *mistaken[: _MAX_MISTAKEN - 1]]
