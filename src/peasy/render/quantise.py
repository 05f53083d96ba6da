"""Numbers made small for a page: whole steps between the smallest and the largest, with the error that this costs.

The page says the error beside its numbers and writes no more decimals than it leaves.
"""

import base64
import math
import zlib
from typing import Any

import numpy as np

FINE = 1_000_000
"""Up to so many numbers each gets two bytes, above it one."""


def quantise(values: Any, fine: int = FINE) -> dict[str, Any]:
    """The numbers as steps, deflated and in base64; the last code stands for what is not there (NaN).

    >>> packed = quantise([[0.0, 0.25], [1.0, float("nan")]])
    >>> packed["shape"], packed["error"] < 1e-5, unpack(packed).round(4).tolist()
    ([2, 2], True, [[0.0, 0.25], [1.0, nan]])
    """
    array = np.asarray(values, dtype=np.float64)  # in 32 bits the rounding alone would pass the stated error
    there = np.isfinite(array)
    low, high = (float(f(array[there])) if there.any() else 0.0 for f in (np.min, np.max))
    dtype = np.dtype("<u2") if array.size <= fine else np.dtype("u1")
    last = np.iinfo(dtype).max
    step = (high - low) / (last - 1) if high > low else 1.0
    with np.errstate(invalid="ignore"):
        codes = np.where(there, np.rint((array - low) / step), last).astype(dtype)
    return {
        "shape": list(array.shape),
        "bytes": dtype.itemsize,
        "low": low,
        "high": high,
        "error": step / 2 if high > low else 0.0,
        "data": base64.b64encode(zlib.compress(codes.tobytes(), 6)).decode("ascii"),
    }


def pack_exactly(values: Any) -> dict[str, Any]:
    """The numbers as they are, in 32 bits each, deflated and in base64: for what is calculated with.

    >>> pack_exactly([[0.5, 1.0]])["shape"]
    [1, 2]
    """
    array = np.asarray(values, dtype="<f4")
    return {
        "shape": list(array.shape),
        "data": base64.b64encode(zlib.compress(array.tobytes(), 6)).decode("ascii"),
    }


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """The numbers again, as a page reads them."""
    dtype = np.dtype("<u2" if packed["bytes"] == 2 else "u1")
    codes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype).reshape(packed["shape"])
    last = np.iinfo(dtype).max
    step = (packed["high"] - packed["low"]) / (last - 1)
    return np.where(codes == last, np.nan, packed["low"] + codes * step)


def decimals_left(error: float, most: int) -> int:
    """How many decimals are still true with such an error, at most `most`.

    >>> decimals_left(0.002, 4), decimals_left(7.6e-6, 4), decimals_left(0.0, 4)
    (2, 4, 4)
    """
    return most if error <= 0 else max(0, min(most, math.floor(-math.log10(2 * error))))
