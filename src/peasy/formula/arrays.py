"""Getting arrays of one library, one kind of number and fitting sizes, or saying what does not fit."""

from typing import Any

import array_api_compat
from array_api_compat import numpy as default_library

from peasy.errors import InvalidInput
from peasy.formula.step import Array


def together(**named: Any) -> tuple[Any, list[Array]]:
    """The library the arrays share, and the arrays as floating-point numbers of at least 32 bits.

    Nested lists become NumPy arrays; None stays None.
    """
    arrays = {name: as_array(name, each) for name, each in named.items()}
    given = [each for each in arrays.values() if each is not None]
    try:
        xp = array_api_compat.array_namespace(*given)
    except TypeError:
        kinds = ", ".join(f"{name} ({type(each).__module__.split('.')[0]})" for name, each in arrays.items())
        raise InvalidInput(
            f"The arrays come from different libraries: {kinds}.", hint="Convert them to one library first."
        ) from None
    return xp, [None if each is None else as_float(xp, each) for each in arrays.values()]


def as_array(name: str, given: Any) -> Array:
    """`given` itself if it is an array, else a NumPy array made of it."""
    if given is None or array_api_compat.is_array_api_obj(given):
        return given
    try:
        array = default_library.asarray(given)
    except ValueError:
        raise InvalidInput(f"{name} has rows of different lengths.", hint="Give every row the same length.") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} holds something that is not a number.")
    return array


def as_float(xp: Any, array: Array) -> Array:
    """Numbers fit for sums: whole numbers and half precision are widened."""
    if xp.isdtype(array.dtype, ("bool", "integral")):
        return xp.astype(array, xp.float64)
    if getattr(array.dtype, "itemsize", 4) < 4:  # libraries without itemsize have no half precision
        return xp.astype(array, xp.float32)
    return array


def times(shape: tuple[int, ...]) -> str:
    """Sizes as people write them.

    >>> times((3, 2))
    '3x2'
    """
    return "x".join(map(str, shape))


def project(x: Array, weights: Array, names: tuple[str, str]) -> Array:
    """x · weights, or an error that says which sizes meet."""
    if x.shape[-1] != weights.shape[-2]:
        raise mismatch(names, x.shape, weights.shape)
    return x @ weights


def mismatch(names: tuple[str, str], left: tuple[int, ...], right: tuple[int, ...]) -> InvalidInput:
    """Inner dimensions should match: what was given, what would go."""
    rows, inner = left[-2:]
    turned_goes = right[-1] == inner
    columns = right[-2] if turned_goes else right[-1]
    return InvalidInput(
        f"{names[0]} is {times(left)} and {names[1]} is {times(right)}: inner dimensions should match. "
        f"{times(left[-2:])} · {times(right[-2:])} does not go, {rows}x{inner} · {inner}x{columns} does.",
        hint=f"Transpose {names[1]}." if turned_goes else f"Give {names[1]} {inner} rows.",
    )
