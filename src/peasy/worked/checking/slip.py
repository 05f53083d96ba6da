"""Slips that make whole rows of weights wrong in a way that can be named: one forgets the scale or the mask, goes down
the columns, or divides by the plain sum. The cells stay wrong; the reason says what happened, and what was worked
out from them follows even where it was worked out from more digits than were written."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np

from peasy.formula.normalise import softmax
from peasy.worked.checking.cell import Content, Mark, Number
from peasy.worked.checking.route import Array, Rules, mask_scores
from peasy.worked.checking.table import Placed


@dataclass(frozen=True)
class Slip:
    """Weights as they come out after a slip; `says` goes into the reason."""

    says: str
    values: Array


def find_slip(table: Placed, wrong: Set[int], rules: Rules, scores: Array, scaled: Array) -> Slip | None:
    """The slip that explains every cell of every row in which something is wrong; None if no single one does."""
    return next(
        (slip for slip in _slips(rules, scores, scaled) if wrong and _explains(slip.values, table, wrong)), None
    )


def _slips(rules: Rules, scores: Array, scaled: Array) -> Iterator[Slip]:
    if rules.normalise.name != "softmax":
        return
    masked = mask_scores(rules, scaled)
    if not np.array_equal(scores, scaled):
        yield Slip("that is without scaling the scores", softmax(np, mask_scores(rules, scores)))
    if not np.array_equal(masked, scaled):
        yield Slip("that is without the mask", softmax(np, scaled))
    yield Slip("that is the softmax down the columns", softmax(np, masked.T).T)
    seen = np.where(masked == -np.inf, 0, masked)
    yield Slip("that is divided by the sum, without e^x", seen / seen.sum(axis=-1, keepdims=True))


def _explains(values: Array, table: Placed, rows: Set[int]) -> bool:
    return all(_fits(content, values[at]) for at, content in table.cells.items() if at[0] in rows)


def _fits(content: Content, value: float) -> bool:
    return value == 0 if content is Mark.HIDDEN else isinstance(content, Number) and content.allows(value)
