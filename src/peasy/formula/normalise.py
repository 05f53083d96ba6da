"""From scores to weights: softmax, division by the sum, or nothing. Hidden keys always weigh zero."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peasy.errors import InvalidInput
from peasy.formula.step import Array


@dataclass(frozen=True)
class Normalisation:
    """How a row of scores becomes a row of weights; `tex` has %s where the scores stand."""

    name: str
    tex: str
    says: str
    weigh: Callable[[Any, Array], Array]


def softmax(xp: Any, masked: Array) -> Array:
    """e^x over its row sum; a row in which everything is hidden (-inf) gives zeros.

    The largest score is subtracted first: it cancels out, and keeps e^x within range.
    """
    powers, total = raise_scores(xp, masked)
    return powers / total


def raise_scores(xp: Any, masked: Array) -> tuple[Array, Array]:
    """What softmax divides: e^x, and the sum of each row; 1 where everything is hidden: nothing divides by 0."""
    if masked.shape[-1] == 0:
        return masked, xp.ones_like(xp.sum(masked, axis=-1, keepdims=True))
    largest = xp.max(masked, axis=-1, keepdims=True)
    largest = xp.where(largest == -xp.inf, xp.zeros_like(largest), largest)
    powers = xp.exp(masked - largest)
    total = xp.sum(powers, axis=-1, keepdims=True)
    return powers, xp.where(total == 0, xp.ones_like(total), total)


def by_sum(xp: Any, masked: Array) -> Array:
    """Each score over the sum of its row's visible scores; a sum of zero, up to rounding, is an error."""
    seen = nothing(xp, masked)
    total = xp.sum(seen, axis=-1, keepdims=True)
    rounding = xp.finfo(seen.dtype).eps * xp.sum(xp.abs(seen), axis=-1, keepdims=True)
    any_seen = xp.any(masked != -xp.inf, axis=-1, keepdims=True)
    if bool(xp.any((xp.abs(total) <= rounding) & any_seen)):
        raise InvalidInput(
            "The visible scores of a row sum to 0, so they cannot be divided by their sum.",
            hint='normalise="softmax" has no such rows: its powers of e are always above 0.',
        )
    return seen / xp.where(any_seen, total, xp.ones_like(total))


def nothing(xp: Any, masked: Array) -> Array:
    """The visible scores as they are, zero where hidden."""
    return xp.where(masked == -xp.inf, xp.zeros_like(masked), masked)


SOFTMAX = Normalisation(
    "softmax",
    r"\operatorname{softmax}\left(%s\right)",
    "Each row becomes shares of 1: e to the power of each score, divided by the sum of the row.",
    softmax,
)
SUM = Normalisation(
    "sum",
    r"\frac{%s}{\text{sum of its row}}",
    "Each row becomes shares of 1: each score divided by the sum of the row.",
    by_sum,
)
NONE = Normalisation(
    "none",
    "%s",
    "The scores are the weights; nothing makes a row sum to 1.",
    nothing,
)
NORMALISATIONS = {each.name: each for each in (SOFTMAX, SUM, NONE)}
