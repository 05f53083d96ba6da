"""NaN-safe products: masked keys and values never reach a sum, even if they are NaN or inf.

Zero times NaN is NaN, in sums as in gradients. So if there is a mask, non-finite numbers are replaced by zero
before the products; scores and contexts that do depend on them become NaN afterwards.
"""

from collections.abc import Callable
from typing import Any

from peasy.formula.step import Array


def nan_safe_scores(xp: Any, score: Callable, query: Array, key: Array, mask: Array | None) -> Array:
    """Return `score(xp, query, key)`; a vector with NaN or inf makes only its own scores NaN."""
    if mask is None:
        return score(xp, query, key)
    (query, bad_query), (key, bad_key) = zero_nonfinite(xp, query), zero_nonfinite(xp, key)
    scores = score(xp, query, key)
    if bad_query is not None:
        scores = xp.where(xp.any(bad_query, axis=-1)[..., :, None], xp.nan, scores)
    if bad_key is not None:
        scores = xp.where(xp.any(bad_key, axis=-1)[..., None, :], xp.nan, scores)
    return scores


def nan_safe_weighted_sum(xp: Any, weights: Array, value: Array, mask: Array | None) -> Array:
    """Return weights · value; a value with NaN or inf reaches only the queries that may attend to it."""
    if mask is None:
        return weights @ value
    value, bad = zero_nonfinite(xp, value)
    total = weights @ value
    if bad is None:
        return total
    attends = xp.astype(xp.broadcast_to(mask, weights.shape), weights.dtype)
    return xp.where(attends @ xp.astype(bad, weights.dtype) > 0, xp.nan, total)


def zero_nonfinite(xp: Any, array: Array) -> tuple[Array, Array | None]:
    """Replace NaN and inf by zero; also return where they were, None = nowhere."""
    finite = xp.isfinite(array)
    if bool(xp.all(finite)):
        return array, None
    return xp.where(finite, array, xp.zeros_like(array)), ~finite
