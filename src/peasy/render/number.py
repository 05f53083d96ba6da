"""How a number is written: one rule for all formats.

A document says how many decimals a number gets. A matrix or column whose numbers all need fewer is written
with fewer, the same for all its cells, so that whole numbers look whole.
"""

import math
from collections.abc import Iterable

from peasy.views.document import Cell

HUGE = 1e9
"""From here on a number is written with a power of ten."""

_CLOSE = 1e-12
"""A rest this small, relative to the number, is what binary arithmetic left behind, not a decimal."""


def write(value: float, decimals: int = 4) -> str:
    """A number at that many decimals: no minus zero, and words where there is no number.

    >>> write(2 / 3), write(-0.00001), write(float("-inf")), write(float("nan"))
    ('0.6667', '0.0000', '−∞', 'not a number')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= HUGE:
        return f"{value:.{decimals}e}"
    written = f"{value:.{decimals}f}"
    return written.lstrip("-") if float(written) == 0 else written


def decimals_for(values: Iterable[Cell], most: int) -> int:
    """How many decimals these numbers need, at most `most`.

    >>> decimals_for([1.0, 2.5], 4), decimals_for([1 / 3], 4), decimals_for([2.0, "x", None], 4)
    (1, 4, 0)
    """
    numbers = [float(each) for each in values if is_number(each) and math.isfinite(each)]  # type: ignore[arg-type]
    for decimals in range(most):
        if all(abs(round(each, decimals) - each) <= _CLOSE * max(1.0, abs(each)) for each in numbers):
            return decimals
    return most


def write_cell(cell: Cell, decimals: int) -> str:
    """A cell's number as `write` has it, its text as it is, nothing for None."""
    if cell is None:
        return ""
    return write(float(cell), decimals) if is_number(cell) else str(cell)


def is_number(cell: object) -> bool:
    """Whether a cell is a number (a truth value is not)."""
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def stated(decimals: int) -> str:
    """The sentence that says how numbers are rounded."""
    places = {0: "whole numbers", 1: "1 decimal"}.get(decimals, f"{decimals} decimals")
    return f"Numbers are rounded to {places}; where fewer say it all, fewer are written."
