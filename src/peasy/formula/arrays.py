"""Getting arrays of one library, one kind of number and fitting sizes, or saying what does not fit."""

from typing import Any

import array_api_compat
import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.step import Array


def together(**named: Any) -> tuple[Any, list[Array]]:
    """The library the arrays share, and the arrays as floating-point numbers of one kind, at least 32 bits wide.

    The widest floating-point array decides the kind; lists and whole numbers follow it, and are 64 bits
    wide where there is none. None stays None.
    """
    xp, arrays = gather(**named)
    floats = [
        array.dtype
        for (name, given), array in zip(named.items(), arrays, strict=True)
        if array is not None and is_floating(xp, name, array) and array_api_compat.is_array_api_obj(given)
    ]
    dtype = xp.result_type(xp.float32, *floats) if floats else xp.float64
    return xp, [None if array is None else xp.astype(array, dtype, copy=False) for array in arrays]


def gather(**named: Any) -> tuple[Any, list[Array]]:
    """The library the arrays share, and the arrays in it: nested lists become arrays, None stays None."""
    given = [each for each in named.values() if array_api_compat.is_array_api_obj(each)]
    try:
        xp = array_api_compat.array_namespace(*given or [np.empty(0)])
    except TypeError:
        kinds = ", ".join(
            f"{name} ({type(each).__module__.split('.')[0]})"
            for name, each in named.items()
            if array_api_compat.is_array_api_obj(each)
        )
        raise InvalidInput(
            f"The arrays come from different libraries: {kinds}.", hint="Convert them to one library first."
        ) from None
    device = array_api_compat.device(given[0]) if given else None
    return xp, [
        each if each is None or array_api_compat.is_array_api_obj(each) else from_list(xp, name, each, device)
        for name, each in named.items()
    ]


def from_list(xp: Any, name: str, given: Any, device: Any) -> Array:
    """An array made of nested lists of numbers."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise InvalidInput(f"{name} has rows of different lengths.", hint="Give every row the same length.") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} holds something that is not a number.")
    return xp.asarray(array, device=device)


def is_floating(xp: Any, name: str, array: Array) -> bool:
    """True for real numbers with a point, False for whole ones; anything else is refused."""
    try:
        floating = xp.isdtype(array.dtype, "real floating")
        known = floating or xp.isdtype(array.dtype, ("bool", "integral"))
    except TypeError:  # NumPy cannot place types from elsewhere, such as the bfloat16 of ml_dtypes
        floating = known = xp.result_type(xp.float32, array.dtype) in (xp.float32, xp.float64)
    if not known:
        raise InvalidInput(f"{name} holds {array.dtype}, not real numbers.")
    return floating


def times(shape: tuple[int, ...]) -> str:
    """Sizes as people write them.

    >>> times((3, 2))
    '3x2'
    """
    return "x".join(map(str, shape))


def project(x: Array, weights: Array, names: tuple[str, str]) -> Array:
    """x · weights, or an error that says which sizes meet."""
    if x.ndim < 2 or weights.ndim < 2:
        name, array = (names[0], x) if x.ndim < 2 else (names[1], weights)
        raise InvalidInput(f"{name} should be a matrix, but has {array.ndim} axes.", hint="Give rows and columns.")
    if x.shape[-1] != weights.shape[-2]:
        raise mismatch(names, x.shape, weights.shape)
    return x @ weights


def mismatch(names: tuple[str, str], left: tuple[int, ...], right: tuple[int, ...]) -> InvalidInput:
    """Inner dimensions should match: what was given, what would go."""
    rows, inner = left[-2:]
    turned_goes = right[-1] == inner
    columns = right[-2] if turned_goes else right[-1]
    return InvalidInput(
        f"{names[0]} is {times(left)} and {names[1]} is {times(right)}, but inner dimensions should match: "
        f"{times(left[-2:])} · {times(right[-2:])} does not go, {rows}x{inner} · {inner}x{columns} does.",
        hint=f"Transpose {names[1].removesuffix('ᵀ')}." if turned_goes else f"Give {names[1]} {inner} rows.",
    )
