"""What stands behind a mask is inert, even NaN or infinity: sums of those who do not look at it stay clean.

Zero times NaN is NaN, in the sum of the values as in the gradients. So where something is hidden, numbers
that are not finite are set aside before the products, and put back, as NaN, for those who do look at them.
"""

from collections.abc import Callable
from typing import Any

from peasy.formula.step import Array


def score_pairs(xp: Any, score: Callable, query: Array, key: Array, may_look: Array | None) -> Array:
    """`score(xp, query, key)`; a vector that holds NaN or infinity makes its own scores NaN and no others."""
    if may_look is None:
        return score(xp, query, key)
    (query, bad_query), (key, bad_key) = set_aside(xp, query), set_aside(xp, key)
    scores = score(xp, query, key)
    if bad_query is not None:
        scores = xp.where(xp.any(bad_query, axis=-1)[..., :, None], xp.nan, scores)
    if bad_key is not None:
        scores = xp.where(xp.any(bad_key, axis=-1)[..., None, :], xp.nan, scores)
    return scores


def sum_values(xp: Any, weights: Array, value: Array, may_look: Array | None) -> Array:
    """weights · value; a value that holds NaN or infinity reaches those who look at it and no others."""
    if may_look is None:
        return weights @ value
    value, bad = set_aside(xp, value)
    total = weights @ value
    if bad is None:
        return total
    looks = xp.astype(xp.broadcast_to(may_look, weights.shape), weights.dtype)
    return xp.where(looks @ xp.astype(bad, weights.dtype) > 0, xp.nan, total)


def set_aside(xp: Any, array: Array) -> tuple[Array, Array | None]:
    """The array with zero where NaN or infinity stands, and where that was; None = nowhere."""
    good = xp.isfinite(array)
    if bool(xp.all(good)):
        return array, None
    return xp.where(good, array, xp.zeros_like(array)), ~good
