"""Verdict on one written cell: right, wrong, follows from an earlier mistake, or truncated instead of rounded.

It compares the cell with all readings of its table: computed exactly, computed from earlier written tables, as written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from peasy.errors import PeasyError
from peasy.worked.checking.cell import WrittenNumber
from peasy.worked.checking.derivations import Derivation
from peasy.worked.label import format_number

Verdict = Literal["right", "wrong", "follows", "truncated"]

SEVERITY: tuple[Verdict, ...] = ("right", "truncated", "follows", "wrong")
"""Verdicts from least to most severe."""

_MASKED_SCORE_LIMIT = -1e4
"""A masked score at or below this counts as minus infinity."""


_MAX_READINGS = 24
"""Maximum number of readings kept per table."""


@dataclass(frozen=True)
class TableReading:
    """One reading of a table. `clean` if it contains no mistake; `written` is the table it was written in."""

    values: np.ndarray
    clean: bool
    derivation: Derivation | None = None
    parents: tuple["TableReading", ...] = ()
    written: str = ""

    @property
    def mistaken_table(self) -> str:
        """Caption of the table whose mistake this reading contains."""
        if self.clean or self.written:
            return self.written
        return next(parent.mistaken_table for parent in self.parents if not parent.clean)

    def summary(self, row: int, column: int) -> str:
        """Return the arithmetic of one cell: `1·1 + 1·1 = 2`."""
        number = format_number(self.values[row, column])
        arithmetic = (
            self.derivation.explain(row, column, [parent.values for parent in self.parents]) if self.derivation else ""
        )
        return f"{arithmetic} = {number}" if arithmetic else f"It is given as {number}"


def derive_readings(
    derivations: Sequence[Derivation], readings: Mapping[str, list[TableReading]]
) -> list[TableReading]:
    """Return every reading of a table that follows from readings of earlier tables; the exact one first."""
    derived: list[TableReading] = []
    for route in derivations:
        for parents in product(*(readings.get(parent, []) for parent in route.parents)):
            try:
                values = route.compute(*(parent.values for parent in parents))
            except PeasyError:
                if not derived:
                    raise
                continue  # a reading with a mistake may not fit; the exact one did
            derived.append(TableReading(values, all(parent.clean for parent in parents), route, parents))
    return unique_readings(derived)


def written_readings(
    name: str, written: np.ndarray, wrong: np.ndarray, known: Sequence[TableReading]
) -> list[TableReading]:
    """Return the readings of a written table for later tables: corrected, and with its mistakes if it has any.

    Cells that are not written are filled in from known readings.
    """
    exact = exact_reading(known)
    right = np.full_like(written, np.nan) if exact is None else exact.values
    if right.shape != written.shape or np.isnan(written).all():
        return []
    filled = np.where(np.isnan(written), right, written)
    corrected = TableReading(np.where(wrong, right, filled), clean=True)
    return [corrected, TableReading(filled, clean=False, written=name)] if wrong.any() else [corrected]


def exact_reading(readings: Sequence[TableReading]) -> TableReading | None:
    """Return the first clean reading."""
    return next((version for version in readings if version.clean), None)


def readings_with_cell(readings: Sequence[TableReading], row: int, column: int) -> list[TableReading]:
    """Return the readings in which this cell is known."""
    return [version for version in readings if not np.isnan(version.values[row, column])]


def unique_readings(readings: Sequence[TableReading]) -> list[TableReading]:
    """Remove duplicate readings; clean ones first (the exact one stays at the front)."""
    distinct: list[TableReading] = []
    for reading in sorted(readings, key=lambda reading: not reading.clean):
        if not any(np.array_equal(reading.values, other.values, equal_nan=True) for other in distinct):
            distinct.append(reading)
    return distinct[:_MAX_READINGS]


@dataclass(frozen=True)
class CellVerdict:
    """Verdict on a cell with the expected value (None if known only from a mistaken table) and the reason."""

    verdict: Verdict
    expected: float | str | None
    reason: str


def judge_number(
    number: WrittenNumber, text: str, readings: Sequence[TableReading], row: int, column: int
) -> CellVerdict | None:
    """Judge a number by all readings of its table; None if no reading has the cell."""
    readings = readings_with_cell(readings, row, column)
    if not readings:
        return None
    exact = exact_reading(readings)
    expected = None if exact is None else float(exact.values[row, column])
    verdict, reading = find_verdict(number, readings, row, column)
    reason = (reading or exact or readings[0]).summary(row, column)
    if verdict == "wrong":
        reason += f", not {text}"
    elif verdict == "truncated":
        reason += f": cut off instead of rounded, which gives {expected:.{max(number.decimals or 0, 0)}f}"
    elif reading and verdict == "follows":
        reason += f": consistent with the mistake in {reading.mistaken_table}"
        reason += f"; without it {exact.summary(row, column)}" if exact else ""
    return CellVerdict(verdict, expected, f"{reason}.")


def find_verdict(
    number: WrittenNumber, readings: Sequence[TableReading], row: int, column: int
) -> tuple[Verdict, TableReading | None]:
    """Return the verdict and the reading that the number agrees with."""

    def agreeing(clean: bool, agrees: Callable[[WrittenNumber, float], bool]) -> TableReading | None:
        fitting = (
            reading for reading in readings if reading.clean is clean and agrees(number, reading.values[row, column])
        )
        return next(fitting, None)

    if reading := agreeing(True, _agrees):
        return "right", reading
    if reading := agreeing(False, _agrees):
        return "follows", reading
    if reading := agreeing(True, _truncates):
        return "truncated", reading
    reading = agreeing(False, _truncates)
    return ("follows" if reading else "wrong"), reading


def judge_masked(
    labels: tuple[str, str], masked: bool, readings: Sequence[TableReading], row: int, column: int
) -> CellVerdict | None:
    """Judge an `x`, which marks the key as masked for the query."""
    readings = readings_with_cell(readings, row, column)
    if masked or any(version.values[row, column] == -np.inf for version in readings):
        return CellVerdict("right", "x", "This key is masked.")
    if not readings:
        return None
    explanation = readings[0].summary(row, column)
    return CellVerdict(
        "wrong", float(readings[0].values[row, column]), f"{labels[1]} is not masked for {labels[0]}: {explanation}."
    )


def _agrees(number: WrittenNumber, exact: float) -> bool:
    return number.value <= _MASKED_SCORE_LIMIT if exact == -np.inf else number.is_rounding_of(exact)


def _truncates(number: WrittenNumber, exact: float) -> bool:
    return bool(np.isfinite(exact)) and number.is_truncation_of(exact)
