"""Verdict on one written cell: right, wrong, follows from an earlier mistake, or cut off instead of rounded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from peasy.worked.checking.cell import Number
from peasy.worked.checking.version import Version, best, knowing

Verdict = Literal["right", "wrong", "follows", "cut"]

GRAVITY: tuple[Verdict, ...] = ("right", "cut", "follows", "wrong")
"""Verdicts from least to most severe."""

FAR_DOWN = -1e4
"""A masked score at or below this counts as minus infinity."""


@dataclass(frozen=True)
class Judged:
    """Verdict on a cell with the right value (None if known only from a mistaken table) and the reason."""

    verdict: Verdict
    right: float | str | None
    why: str


def judge_number(number: Number, text: str, known: Sequence[Version], row: int, column: int) -> Judged | None:
    """Judge a number by all readings of its table; None if no reading has the cell."""
    known = knowing(known, row, column)
    if not known:
        return None
    exact = best(known)
    right = None if exact is None else float(exact.values[row, column])
    verdict, reading = settle(number, known, row, column)
    why = (reading or exact or known[0]).says(row, column)
    if verdict == "wrong":
        why += f", not {text}"
    elif verdict == "cut":
        why += f": cut off instead of rounded, which gives {right:.{max(number.decimals or 0, 0)}f}"
    elif reading and verdict == "follows":
        why += f": consistent with the mistake in {reading.mistaken}"
        why += f"; without it {exact.says(row, column)}" if exact else ""
    return Judged(verdict, right, f"{why}.")


def settle(number: Number, known: Sequence[Version], row: int, column: int) -> tuple[Verdict, Version | None]:
    """Return the verdict and the reading that the number agrees with."""

    def agreeing(clean: bool, agrees: Callable[[Number, float], bool]) -> Version | None:
        fitting = (
            reading for reading in known if reading.clean is clean and agrees(number, reading.values[row, column])
        )
        return next(fitting, None)

    if reading := agreeing(True, _agrees):
        return "right", reading
    if reading := agreeing(False, _agrees):
        return "follows", reading
    if reading := agreeing(True, _cuts):
        return "cut", reading
    if reading := agreeing(False, _cuts):
        return "follows", reading
    return "wrong", None


def judge_hidden(who: tuple[str, str], hidden: bool, known: Sequence[Version], row: int, column: int) -> Judged | None:
    """Judge an `x`, which marks the key as masked for the query."""
    known = knowing(known, row, column)
    if hidden or any(version.values[row, column] == -np.inf for version in known):
        return Judged("right", "x", "This key is masked.")
    if not known:
        return None
    explanation = known[0].says(row, column)
    return Judged("wrong", float(known[0].values[row, column]), f"{who[1]} is not masked for {who[0]}: {explanation}.")


def _agrees(number: Number, exact: float) -> bool:
    return number.value <= FAR_DOWN if exact == -np.inf else number.allows(exact)


def _cuts(number: Number, exact: float) -> bool:
    return bool(np.isfinite(exact)) and number.cuts(exact)
