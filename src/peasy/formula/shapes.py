"""Shape checks for queries, keys, values, masks and numbers, with readable errors."""

import math
from numbers import Integral

from peasy.errors import InvalidInput
from peasy.formula.arrays import format_shape
from peasy.formula.step import Array


def check_shapes(query: Array, key: Array, value: Array) -> None:
    """Check that key and value match, and that batch and heads of the query fit."""
    check_axes(query=query, key=key, value=value)
    if not query.ndim == key.ndim == value.ndim:
        raise InvalidInput(
            f"query is {format_shape(query.shape)}, key is {format_shape(key.shape)} "
            f"and value is {format_shape(value.shape)}.",
            hint="All three must have the same number of axes.",
        )
    if key.shape[:-1] != value.shape[:-1]:
        raise InvalidInput(
            f"key is {format_shape(key.shape)} and value is {format_shape(value.shape)}: "
            "every key needs exactly one value.",
            hint="All dimensions but the last must be equal.",
        )
    if query.ndim > 2 and query.shape[0] != key.shape[0]:
        raise InvalidInput(
            f"query is {format_shape(query.shape)} and key is {format_shape(key.shape)}: the batch sizes differ."
        )
    if query.ndim == 4 and query.shape[1] != key.shape[1] and (not key.shape[1] or query.shape[1] % key.shape[1]):
        raise InvalidInput(
            f"{query.shape[1]} query heads cannot share {key.shape[1]} KV heads evenly.",
            hint="The number of query heads must be a multiple of the number of KV heads.",
        )


def check_axes(**named: Array | None) -> None:
    """Check that arrays have two, three or four axes and non-empty vectors."""
    for name, array in named.items():
        if array is None:
            raise InvalidInput(f"{name} is missing.")
        if array.ndim not in (2, 3, 4):
            raise InvalidInput(
                f"{name} has {array.ndim} axes.",
                hint="Use [time, width], [batch, time, width] or [batch, head, time, width].",
            )
        if array.shape[-1] == 0:
            raise InvalidInput(f"{name} is {format_shape(array.shape)}: its vectors are empty.")


def check_broadcastable(name: str, array: Array, scores_shape: tuple[int, ...]) -> None:
    """Check that `array` is broadcastable to the scores."""
    fits = array.ndim <= len(scores_shape) and all(
        size in (1, expected) for size, expected in zip(array.shape[::-1], scores_shape[::-1], strict=False)
    )
    if not fits:
        n_query, n_key = scores_shape[-2:]
        raise InvalidInput(
            f"{name} is {format_shape(array.shape)}, but the scores are {format_shape(scores_shape)}.",
            hint=f"{name} must be {n_query}x{n_key}: one row per query, one column per key.",
        )


def check_number(name: str, number: float | None, *, positive: bool = False) -> None:
    """Check that a number is finite, or None."""
    if number is None:
        return
    try:
        fits = math.isfinite(number) and not (positive and number < 0)
    except TypeError:
        fits = False
    if not fits:
        raise InvalidInput(f"{name} should be a finite number{' above 0' if positive else ''}, not {number!r}.")


def check_heads(heads: int) -> None:
    """Check that there is at least one head."""
    if not isinstance(heads, Integral) or heads < 1:
        raise InvalidInput(f"heads should be a whole number above 0, not {heads!r}.")
