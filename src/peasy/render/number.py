"""Number formatting for all output formats.

A document sets the number of decimals. A matrix or column whose numbers all need fewer decimals is written
with fewer, the same for all its cells, so that whole numbers look whole.
"""

import math
from collections.abc import Iterable
from typing import TypeGuard

from peasy.views.document import Cell

SCIENTIFIC_FROM = 1e9
"""Numbers from here on are written in scientific notation."""

_TOLERANCE = 1e-12
"""Relative tolerance: a smaller remainder is floating-point error, not a decimal."""


def format_number(value: float, decimals: int = 4) -> str:
    """Format a number at `decimals`, without minus zero; NaN becomes "not a number".

    >>> format_number(2 / 3), format_number(-0.00001), format_number(float("-inf")), format_number(float("nan"))
    ('0.6667', '0.0000', '−∞', 'not a number')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) >= SCIENTIFIC_FROM:
        return f"{value:.{decimals}e}"
    written = f"{value:.{decimals}f}"
    return written.lstrip("-") if float(written) == 0 else written


def decimals_for(values: Iterable[Cell], max_decimals: int) -> int:
    """Return how many decimals these numbers need, at most `max_decimals`.

    >>> decimals_for([1.0, 2.5], 4), decimals_for([1 / 3], 4), decimals_for([2.0, "x", None], 4)
    (1, 4, 0)
    """
    numbers = [float(value) for value in values if is_number(value) and math.isfinite(value)]
    for decimals in range(max_decimals):
        if all(abs(round(number, decimals) - number) <= _TOLERANCE * max(1.0, abs(number)) for number in numbers):
            return decimals
    return max_decimals


def format_cell(cell: Cell, decimals: int) -> str:
    """Format a cell: numbers by `format_number`, text unchanged, None as empty."""
    if cell is None:
        return ""
    return format_number(float(cell), decimals) if is_number(cell) else str(cell)


def is_number(cell: object) -> TypeGuard[float]:
    """True if a cell is a number (bool excluded)."""
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def rounding_notice(decimals: int) -> str:
    """Return the sentence about rounding."""
    places = {0: "whole numbers", 1: "1 decimal"}.get(decimals, f"{decimals} decimals")
    return f"Numbers are rounded to {places}; fewer decimals are shown if they are exact."
