"""Quantisation of arrays for web pages: 8 or 16 bits per number between minimum and maximum, with the error bound.

The page shows the error and writes no more decimals than it allows.
"""

import base64
import math
import zlib
from typing import Any

import numpy as np

MAX_TWO_BYTE_SIZE = 1_000_000
"""Maximum size of an array with two bytes per number; larger arrays get one byte."""


def quantise(values: Any, max_two_byte_size: int = MAX_TWO_BYTE_SIZE) -> dict[str, Any]:
    """Quantise, deflate and base64-encode an array; the last code is NaN.

    >>> packed = quantise([[0.0, 0.25], [1.0, float("nan")]])
    >>> packed["shape"], packed["error"] < 1e-5, unpack(packed).round(4).tolist()
    ([2, 2], True, [[0.0, 0.25], [1.0, nan]])
    """
    array = np.asarray(values, dtype=np.float64)  # float32 rounding alone would exceed the stated error
    finite = np.isfinite(array)
    low, high = (float(f(array[finite])) if finite.any() else 0.0 for f in (np.min, np.max))
    dtype = np.dtype("<u2") if array.size <= max_two_byte_size else np.dtype("u1")
    last = np.iinfo(dtype).max
    step = (high - low) / (last - 1) if high > low else 1.0
    with np.errstate(invalid="ignore"):
        codes = np.where(finite, np.rint((array - low) / step), last).astype(dtype)
    return {
        "shape": list(array.shape),
        "bytes": dtype.itemsize,
        "low": low,
        "high": high,
        "error": step / 2 if high > low else 0.0,
        "data": base64.b64encode(zlib.compress(codes.tobytes(), 6)).decode("ascii"),
    }


def pack_float32(values: Any) -> dict[str, Any]:
    """Deflate and base64-encode an array as float32, for numbers that are computed with.

    >>> pack_float32([[0.5, 1.0]])["shape"]
    [1, 2]
    """
    array = np.asarray(values, dtype="<f4")
    return {
        "shape": list(array.shape),
        "data": base64.b64encode(zlib.compress(array.tobytes(), 6)).decode("ascii"),
    }


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """Decode a quantised array, as the page does."""
    dtype = np.dtype("<u2" if packed["bytes"] == 2 else "u1")
    codes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype).reshape(packed["shape"])
    last = np.iinfo(dtype).max
    step = (packed["high"] - packed["low"]) / (last - 1)
    return np.where(codes == last, np.nan, packed["low"] + codes * step)


def exact_decimals(error: float, max_decimals: int) -> int:
    """Return how many decimals are exact with this error, at most `max_decimals`.

    >>> exact_decimals(0.002, 4), exact_decimals(7.6e-6, 4), exact_decimals(0.0, 4)
    (2, 4, 4)
    """
    return max_decimals if error <= 0 else max(0, min(max_decimals, math.floor(-math.log10(2 * error))))
