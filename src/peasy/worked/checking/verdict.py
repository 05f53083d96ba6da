"""Verdict on one written cell: right, wrong, follows from an earlier mistake, or truncated instead of rounded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from peasy.worked.checking.cell import WrittenNumber
from peasy.worked.checking.readings import TableReading, exact_reading, readings_with_cell

Verdict = Literal["right", "wrong", "follows", "truncated"]

SEVERITY: tuple[Verdict, ...] = ("right", "truncated", "follows", "wrong")
"""Verdicts from least to most severe."""

MASKED_SCORE_LIMIT = -1e4
"""A masked score at or below this counts as minus infinity."""


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
    if reading := agreeing(False, _truncates):
        return "follows", reading
    return "wrong", None


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
    return number.value <= MASKED_SCORE_LIMIT if exact == -np.inf else number.is_rounding_of(exact)


def _truncates(number: WrittenNumber, exact: float) -> bool:
    return bool(np.isfinite(exact)) and number.is_truncation_of(exact)
