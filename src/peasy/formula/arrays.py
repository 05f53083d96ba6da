"""Array-API helpers: common namespace and dtype of the inputs; checks of shapes and numbers with readable errors."""

import math

import array_api_compat
import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.step import Array, Namespace


def to_common_dtype(**named: Array) -> tuple[Namespace, list[Array]]:
    """Return the common array namespace, and the arrays in one floating dtype of at least 32 bits.

    The widest floating-point array decides the dtype; lists and integers are converted to it, or to float64
    if there is none. None stays None.
    """
    xp, arrays = to_common_namespace(**named)
    floats = [
        array.dtype
        for (name, value), array in zip(named.items(), arrays, strict=True)
        if array is not None and _is_floating(xp, name, array) and array_api_compat.is_array_api_obj(value)
    ]
    dtype = xp.result_type(xp.float32, *floats) if floats else xp.float64
    return xp, [None if array is None else xp.astype(array, dtype, copy=False) for array in arrays]


def to_common_namespace(**named: Array) -> tuple[Namespace, list[Array]]:
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
        message = f"The arrays come from different libraries: {libraries}."
        raise InvalidInput(message, hint="Convert them to one library first.") from None
    device = array_api_compat.device(arrays[0]) if arrays else None
    return xp, [
        value if value is None or array_api_compat.is_array_api_obj(value) else _from_list(xp, name, value, device)
        for name, value in named.items()
    ]


def _from_list(xp: Namespace, name: str, values: Array, device: object) -> Array:
    """Make an array of nested lists of numbers."""
    try:
        array = np.asarray(values)
    except ValueError:
        message = f"{name} has rows of different lengths."
        raise InvalidInput(message, hint="All rows must have the same length.") from None
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} contains something that is not a number.")
    return xp.asarray(array, device=device)


def _is_floating(xp: Namespace, name: str, array: Array) -> bool:
    """Return True for a real floating dtype, False for bool and integers; raise for others."""
    try:
        floating = xp.isdtype(array.dtype, "real floating")
        known = floating or xp.isdtype(array.dtype, ("bool", "integral"))
    except TypeError:  # NumPy does not classify foreign dtypes such as bfloat16 of ml_dtypes
        floating = known = xp.result_type(xp.float32, array.dtype) in (xp.float32, xp.float64)
    if not known:
        raise InvalidInput(f"{name} has dtype {array.dtype}, not real numbers.")
    return bool(floating)


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
    if any(1 != left != right != 1 for left, right in zip(x.shape[-3::-1], weights.shape[-3::-1], strict=False)):
        shapes = f"{names[0]} is {format_shape(x.shape)} and {names[1]} is {format_shape(weights.shape)}"
        raise InvalidInput(f"{shapes}: their leading dimensions differ.")
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


def check_shapes(query: Array, key: Array, value: Array) -> None:
    """Check that key and value match, and that batch and heads of the query fit."""
    check_axes(query=query, key=key, value=value)
    q, k, v = (format_shape(array.shape) for array in (query, key, value))
    if not query.ndim == key.ndim == value.ndim:
        message = f"query is {q}, key is {k} and value is {v}."
        raise InvalidInput(message, hint="All three must have the same number of axes.")
    if key.shape[:-1] != value.shape[:-1]:
        message = f"key is {k} and value is {v}: every key needs exactly one value."
        raise InvalidInput(message, hint="All dimensions but the last must be equal.")
    if query.ndim > 2 and query.shape[0] != key.shape[0]:
        raise InvalidInput(f"query is {q} and key is {k}: the batch sizes differ.")
    if query.ndim == 4 and query.shape[1] != key.shape[1] and (not key.shape[1] or query.shape[1] % key.shape[1]):
        message = f"{query.shape[1]} query heads cannot share {key.shape[1]} KV heads evenly."
        raise InvalidInput(message, hint="The number of query heads must be a multiple of the number of KV heads.")


def check_axes(**named: Array | None) -> None:
    """Check that arrays have two, three or four axes and non-empty vectors."""
    for name, array in named.items():
        if array is None:
            raise InvalidInput(f"{name} is missing.")
        if array.ndim not in (2, 3, 4):
            message = f"{name} has {array.ndim} axes."
            raise InvalidInput(message, hint="Use [time, width], [batch, time, width] or [batch, head, time, width].")
        if array.shape[-1] == 0:
            raise InvalidInput(f"{name} is {format_shape(array.shape)}: its vectors are empty.")


def check_broadcastable(name: str, array: Array, scores_shape: tuple[int, ...]) -> None:
    """Check that `array` is broadcastable to the scores."""
    fits = array.ndim <= len(scores_shape) and all(
        size in (1, expected) for size, expected in zip(array.shape[::-1], scores_shape[::-1], strict=False)
    )
    if not fits:
        n_query, n_key = scores_shape[-2:]
        message = f"{name} is {format_shape(array.shape)}, but the scores are {format_shape(scores_shape)}."
        raise InvalidInput(message, hint=f"{name} must be {n_query}x{n_key}: one row per query, one column per key.")


def check_number(name: str, number: float | None, *, positive: bool = False) -> None:
    """Check that a number is finite, or None."""
    if number is not None and not (math.isfinite(number) and (number > 0 or not positive)):
        raise InvalidInput(f"{name} should be a finite number{' above 0' if positive else ''}, not {number!r}.")


def check_heads(heads: int) -> None:
    """Check that there is at least one head."""
    if heads < 1:
        raise InvalidInput(f"heads should be a whole number above 0, not {heads!r}.")
