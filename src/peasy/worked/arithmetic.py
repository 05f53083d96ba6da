"""Arithmetic of one cell, line by line: products and sums, roots and quotients, powers of e.

Only displayed numbers are rounded: each line's value is computed from all digits.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from peasy.display import DisplayMixin
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.parameters import Record
from peasy.worked.graph import ArithmeticLine
from peasy.worked.label import token_label
from peasy.worked.solver import WorkedExample


class CellArithmetic(DisplayMixin, Record, repr=False):
    """Arithmetic of one cell; the last line gives its value."""

    step: str
    row: int
    column: int
    title: str
    lines: tuple[ArithmeticLine, ...]
    value: float

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines as text."""
        return tuple(line.text for line in self.lines)

    def __repr__(self) -> str:
        return "\n  ".join((self.title, *self.texts))


def arithmetic(
    worked: WorkedExample, step: str, row: int | str, column: int | str, decimals: int = 4
) -> CellArithmetic:
    """Return the arithmetic behind one cell of a step; `row` and `column` are positions or tokens.

    >>> from peasy.worked import load_example, solve
    >>> for line in arithmetic(solve(load_example("i-love-ai")), "weights", "I", "love").texts:
    ...     print(line)
    I: e^0 = 1
    love: e^0.7071 = 2.0281
    AI: e^0.7071 = 2.0281
    sum: 1 + 2.0281 + 2.0281 = 5.0562
    share: 2.0281 / 5.0562 = 0.4011
    """
    solved = worked.step(step)
    i = find_index(row, solved.rows, f"row of {solved.name}")
    j = find_index(column, solved.columns, f"column of {solved.name}")
    row_label, column_label = token_label(solved.rows[i]), token_label(solved.columns[j])
    title = f"{solved.name}: {solved.row_axis} {row_label}, {solved.column_axis} {column_label}"
    with np.errstate(all="ignore"):
        lines = tuple(worked.graph.lines(solved.name, i, j, worked.values, worked.labels, decimals))
    return CellArithmetic(solved.name, i, j, title, lines, float(solved.values[i, j]))


def find_index(token_or_index: int | str, labels: Sequence[str], kind: str) -> int:
    """Return the index of a label: a number counts from 0 (or from the end), anything else is a token, once there."""
    with suppress(ValueError):
        if len(str(token_or_index)) < 12 and -len(labels) <= int(token_or_index) < len(labels):
            return int(token_or_index) % len(labels)
    if isinstance(token_or_index, str):
        lowered = [label.lower() for label in labels]
        for known, wanted in ((list(labels), token_or_index), (lowered, token_or_index.lower())):
            if known.count(wanted) > 1:
                places = [str(index) for index, label in enumerate(known) if label == wanted]
                hint = f"Which one? Give its position: {', '.join(places[:-1])} or {places[-1]}."
                raise InvalidInput(f'"{token_label(token_or_index)}" is at {len(places)} positions.', hint=hint)
            if wanted in known:
                return known.index(wanted)
    shown = [token_label(label) for label in labels[:20]]
    near = did_you_mean(token_or_index, shown) if isinstance(token_or_index, str) else None
    ellipsis = ", ..." if len(labels) > 20 else ""
    hint = near or f"Positions 0 to {len(labels) - 1}: {', '.join(shown)}{ellipsis}."
    raise NotFound(f"There is no {kind} {token_label(str(token_or_index))!r}.", hint=hint)
