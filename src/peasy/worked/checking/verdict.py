"""The verdict on one written cell: right, wrong, follows from an earlier mistake, or cut off instead of rounded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from peasy.worked.checking.cell import Number
from peasy.worked.checking.version import Version, best, knowing

Verdict = Literal["right", "wrong", "follows", "cut"]

GRAVITY: tuple[Verdict, ...] = ("right", "cut", "follows", "wrong")
"""From the lightest verdict to the heaviest."""

FAR_DOWN = -1e4
"""A masked score at or below this is as good as minus infinity."""


@dataclass(frozen=True)
class Judged:
    """A verdict, what is right (None where only a mistaken table could say), and why."""

    verdict: Verdict
    right: float | str | None
    why: str


def judge_number(number: Number, text: str, known: Sequence[Version], row: int, column: int) -> Judged | None:
    """The verdict on a number, by all readings of its table; None if none of them knows the cell."""
    known = knowing(known, row, column)
    if not known:
        return None
    exact = best(known)
    right = None if exact is None else float(exact.values[row, column])
    verdict, found = settle(number, known, row, column)
    why = (found or exact or known[0]).says(row, column)
    if verdict == "wrong":
        why += f", not {text}"
    elif verdict == "cut":
        why += f": cut off instead of rounded, which gives {right:.{max(number.decimals or 0, 0)}f}"
    elif found and verdict == "follows":
        why += f": right after the mistake in {found.mistaken}"
        why += f"; without it {exact.says(row, column)}" if exact else ""
    return Judged(verdict, right, f"{why}.")


def settle(number: Number, known: Sequence[Version], row: int, column: int) -> tuple[Verdict, Version | None]:
    """The verdict, and the reading that a number agrees with."""

    def agreeing(clean: bool, agrees: Callable[[Number, float], bool]) -> Version | None:
        fitting = (each for each in known if each.clean is clean and agrees(number, each.values[row, column]))
        return next(fitting, None)

    if found := agreeing(True, _agrees):
        return "right", found
    if found := agreeing(False, _agrees):
        return "follows", found
    if found := agreeing(True, _cuts):
        return "cut", found
    if found := agreeing(False, _cuts):
        return "follows", found
    return "wrong", None


def judge_hidden(who: tuple[str, str], hidden: bool, known: Sequence[Version], row: int, column: int) -> Judged | None:
    """The verdict on an `x`, which says that this query may not look at this key."""
    known = knowing(known, row, column)
    if hidden or any(version.values[row, column] == -np.inf for version in known):
        return Judged("right", "x", "What may not be seen is left out.")
    if not known:
        return None
    said = known[0].says(row, column)
    return Judged("wrong", float(known[0].values[row, column]), f"{who[0]} may look at {who[1]}: {said}.")


def _agrees(number: Number, exact: float) -> bool:
    return number.value <= FAR_DOWN if exact == -np.inf else number.allows(exact)


def _cuts(number: Number, exact: float) -> bool:
    return bool(np.isfinite(exact)) and number.cuts(exact)
