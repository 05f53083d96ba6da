"""Array-API helpers: common namespace and dtype of the inputs, shape errors."""

from typing import Any

import array_api_compat
import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.step import Array


def to_common_dtype(**named: Any) -> tuple[Any, list[Array]]:
    """Return the common array namespace, and the arrays in one floating dtype of at least 32 bits.

    The widest floating-point array decides the dtype; lists and integers are converted to it, or to float64
    if there is none. None stays None.
    """
    xp, arrays = to_common_namespace(**named)
    floats = [
        array.dtype
        for (name, value), array in zip(named.items(), arrays, strict=True)
        if array is not None and is_floating(xp, name, array) and array_api_compat.is_array_api_obj(value)
    ]
    dtype = xp.result_type(xp.float32, *floats) if floats else xp.float64
    return xp, [None if array is None else xp.astype(array, dtype, copy=False) for array in arrays]


def to_common_namespace(**named: Any) -> tuple[Any, list[Array]]:
    """Return the common array namespace, and the arrays in it: nested lists become arrays, None stays None."""
    arrays = [value for value in named.values() if array_api_compat.is_array_api_obj(value)]
    try:
        xp = array_api_compat.array_namespace(*arrays or [np.empty(0)])
    except TypeError:
        libraries = ", ".join(
            f"{name} ({type(value).__module__.split('.')[0]})"
            for name, value in named.items()
            if array_api_compat.is_array_api_obj(value)
        )
        raise InvalidInput(
            f"The arrays come from different libraries: {libraries}.", hint="Convert them to one library first."
        ) from None
    device = array_api_compat.device(arrays[0]) if arrays else None
    return xp, [
        value if value is None or array_api_compat.is_array_api_obj(value) else from_list(xp, name, value, device)
        for name, value in named.items()
    ]


def from_list(xp: Any, name: str, values: Any, device: Any) -> Array:
    """Make an array of nested lists of numbers."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidInput(
            f"{name} has rows of different lengths.", hint="All rows must have the same length."
        ) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} contains something that is not a number.")
    return xp.asarray(array, device=device)


def is_floating(xp: Any, name: str, array: Array) -> bool:
    """Return True for a real floating dtype, False for bool and integers; raise for others."""
    try:
        floating = xp.isdtype(array.dtype, "real floating")
        known = floating or xp.isdtype(array.dtype, ("bool", "integral"))
    except TypeError:  # NumPy does not classify foreign dtypes such as bfloat16 of ml_dtypes
        floating = known = xp.result_type(xp.float32, array.dtype) in (xp.float32, xp.float64)
    if not known:
        raise InvalidInput(f"{name} has dtype {array.dtype}, not real numbers.")
    return floating


def format_shape(shape: tuple[int, ...]) -> str:
    """Format a shape.

    >>> format_shape((3, 2))
    '3x2'
    """
    return "x".join(map(str, shape))


def project(x: Array, weights: Array, names: tuple[str, str]) -> Array:
    """Return x · weights; raise a readable error if the shapes do not match."""
    if x.ndim < 2 or weights.ndim < 2:
        name, array = (names[0], x) if x.ndim < 2 else (names[1], weights)
        raise InvalidInput(f"{name} should be a matrix, but has {array.ndim} axes.", hint="Pass rows and columns.")
    if x.shape[-1] != weights.shape[-2]:
        raise shape_mismatch(names, x.shape, weights.shape)
    return x @ weights


def shape_mismatch(names: tuple[str, str], left: tuple[int, ...], right: tuple[int, ...]) -> InvalidInput:
    """Return the error for a product whose inner dimensions differ, with shapes that would work."""
    rows, inner = left[-2:]
    transposed_fits = right[-1] == inner
    columns = right[-2] if transposed_fits else right[-1]
    return InvalidInput(
        f"{names[0]} is {format_shape(left)} and {names[1]} is {format_shape(right)}, "
        f"but inner dimensions should match: {format_shape(left[-2:])} · {format_shape(right[-2:])} is not defined, "
        f"{rows}x{inner} · {inner}x{columns} is.",
        hint=f"Transpose {names[1].removesuffix('ᵀ')}." if transposed_fits else f"{names[1]} needs {inner} rows.",
    )
