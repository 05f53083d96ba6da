"""Refusing queries, keys, values, masks and numbers that do not fit together, in words."""

import math
from numbers import Integral

from peasy.errors import InvalidInput
from peasy.formula.arrays import times
from peasy.formula.step import Array


def check_sizes(query: Array, key: Array, value: Array) -> None:
    """Every key has its value, and every query the same batch and heads to look at."""
    check_axes(query=query, key=key, value=value)
    if not query.ndim == key.ndim == value.ndim:
        raise InvalidInput(
            f"query is {times(query.shape)}, key is {times(key.shape)} and value is {times(value.shape)}.",
            hint="Give all three the same number of axes.",
        )
    if key.shape[:-1] != value.shape[:-1]:
        raise InvalidInput(
            f"key is {times(key.shape)} and value is {times(value.shape)}: every key needs exactly one value.",
            hint="All sizes but the last must be the same.",
        )
    if query.ndim > 2 and query.shape[0] != key.shape[0]:
        raise InvalidInput(f"query is {times(query.shape)} and key is {times(key.shape)}: the batch sizes differ.")
    if query.ndim == 4 and query.shape[1] != key.shape[1] and (not key.shape[1] or query.shape[1] % key.shape[1]):
        raise InvalidInput(
            f"{query.shape[1]} query heads cannot share {key.shape[1]} key heads evenly.",
            hint="The number of query heads must be a multiple of the number of key heads.",
        )


def check_axes(**named: Array | None) -> None:
    """Two, three or four axes, and vectors that are not empty."""
    for name, array in named.items():
        if array is None:
            raise InvalidInput(f"{name} is missing.")
        if array.ndim not in (2, 3, 4):
            raise InvalidInput(
                f"{name} has {array.ndim} axes.",
                hint="Give time x width, batch x time x width or batch x head x time x width.",
            )
        if array.shape[-1] == 0:
            raise InvalidInput(f"{name} is {times(array.shape)}: its vectors have no numbers in them.")


def check_spreads(name: str, array: Array, scores: tuple[int, ...]) -> None:
    """`array` can be laid over the scores without making them larger."""
    fits = array.ndim <= len(scores) and all(
        got in (1, want) for got, want in zip(array.shape[::-1], scores[::-1], strict=False)
    )
    if not fits:
        n_query, n_key = scores[-2:]
        raise InvalidInput(
            f"{name} is {times(array.shape)}, but the scores are {times(scores)}.",
            hint=f"Give {name} {n_query}x{n_key}: one row for each query, one column for each key.",
        )


def check_number(name: str, number: float | None, *, above_zero: bool = False) -> None:
    """A finite number, or None."""
    if number is None:
        return
    try:
        fits = math.isfinite(number) and not (above_zero and number < 0)
    except TypeError:
        fits = False
    if not fits:
        raise InvalidInput(f"{name} should be a finite number{' above 0' if above_zero else ''}, not {number!r}.")


def check_heads(heads: int) -> None:
    """At least one head."""
    if not isinstance(heads, Integral) or heads < 1:
        raise InvalidInput(f"heads should be a whole number above 0, not {heads!r}.")
