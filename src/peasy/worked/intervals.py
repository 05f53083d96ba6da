"""Interval arrays: lower and upper bounds of every number, with the array-API functions that the formula uses.

A number printed as 0.71 may be anything from 0.705 to 0.715. The steps of a worked example run on intervals as they
run on NumPy arrays, with this module as their namespace. An unknown number is the interval from -∞ to ∞; it stays
unknown in every result, except in a product with an exact zero.
"""

import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from peasy.parameters import Record

inf, nan, float32, float64, bool = np.inf, np.nan, np.float32, np.float64, np.bool
any, all, finfo, isdtype, result_type = np.any, np.all, np.finfo, np.isdtype, np.result_type
_Numbers = Any  # an Interval, an array or a number


def _binary(function: "Callable[[Interval, Interval], Any]") -> "Callable[[Interval, _Numbers], Any]":
    """Return an operator of intervals whose other operand may be plain numbers."""
    return lambda interval, other: function(interval, Interval.exact(other))


class Interval(Record, eq=False):
    """Array of intervals `[low, high]`; comparisons are true where they hold for all numbers of the interval."""

    low: np.ndarray
    high: np.ndarray

    __array_ufunc__ = None  # NumPy arrays on the left leave the operation to this class
    device = None

    @classmethod
    def exact(cls, numbers: _Numbers) -> "Interval":
        """Return numbers as intervals of width zero; NaN, an unknown number, becomes the whole line.

        >>> Interval.exact([1.0, float("nan")]).high.tolist()
        [1.0, inf]
        """
        if isinstance(numbers, Interval):
            return numbers
        array = np.asarray(numbers, float)
        return cls(np.where(np.isnan(array), -np.inf, array), np.where(np.isnan(array), np.inf, array))

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        return sys.modules[__name__]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.low.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.low.ndim

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Type of the bounds."""
        return self.low.dtype

    @property
    def width(self) -> np.ndarray:
        """Upper minus lower bound; 0 for a masked score (-∞)."""
        return np.where(self.low == self.high, 0.0, self.high - self.low)

    @property
    def middle(self) -> np.ndarray:
        """Middle of each interval; NaN if unknown."""
        return np.where(self.low == self.high, self.low, np.where(self.is_known, (self.low + self.high) / 2, np.nan))

    @property
    def is_known(self) -> np.ndarray:
        """True where both bounds are finite, or both are -∞ (masked)."""
        return np.asarray((np.isfinite(self.low) & np.isfinite(self.high)) | (self.low == self.high))

    def hull(self, other: "Interval") -> "Interval":
        """Return the smallest intervals that contain both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def __getitem__(self, index: Any) -> "Interval":
        return Interval(self.low[index], self.high[index])

    def __neg__(self) -> "Interval":
        return Interval(-self.high, -self.low)

    __add__ = _binary(lambda a, b: _closed(a.low + b.low, a.high + b.high))
    __sub__ = _binary(lambda a, b: _closed(a.low - b.high, a.high - b.low))
    __mul__ = _binary(lambda a, b: _corners(np.multiply, a, b, undefined=0.0))
    __truediv__ = _binary(lambda a, b: _quotient(a, b))
    __matmul__ = _binary(lambda a, b: _product(a, b))
    __radd__, __rmul__ = __add__, __mul__
    __rsub__, __rtruediv__ = _binary(lambda a, b: b - a), _binary(lambda a, b: b / a)
    __rmatmul__ = _binary(lambda a, b: b @ a)
    __eq__ = _binary(lambda a, b: (a.low == a.high) & (b.low == b.high) & (a.low == b.low))
    __ne__ = _binary(lambda a, b: ~(a == b))
    __le__, __lt__ = _binary(lambda a, b: a.high <= b.low), _binary(lambda a, b: a.high < b.low)
    __gt__ = _binary(lambda a, b: a.low > b.high)


def _closed(low: np.ndarray, high: np.ndarray) -> Interval:
    """Return bounds, with ∞ - ∞ as unknown."""
    return Interval(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def _corners(operation: Callable[..., np.ndarray], a: Interval, b: Interval, undefined: float = np.nan) -> Interval:
    """Return the bounds of an operation that is monotonic in each argument; 0 · ∞ is `undefined`."""
    with np.errstate(all="ignore"):
        corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    corners = [np.where(np.isnan(corner), undefined, corner) for corner in corners]
    low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
    return _closed(low, high)


def _quotient(a: Interval, b: Interval) -> Interval:
    """Return a / b; unknown where b may be 0."""
    quotient, has_zero = _corners(np.divide, a, b), (b.low <= 0) & (b.high >= 0)
    return Interval(np.where(has_zero, -np.inf, quotient.low), np.where(has_zero, np.inf, quotient.high))


def _product(left: Interval, right: Interval) -> Interval:
    """Return left · right, by middle and radius; an unknown number stays unknown unless it is multiplied by zero."""
    is_vector = right.ndim == 1
    right = right[:, None] if is_vector else right
    middles, radii, unknown = [], [], []
    for factor in (left, right):
        known = np.isfinite(factor.low) & np.isfinite(factor.high)
        middles.append(np.where(known, factor.middle, 0.0))
        radii.append(np.where(known, factor.width / 2, 0.0))
        unknown.append(~known)
    middle = middles[0] @ middles[1]
    radius = np.abs(middles[0]) @ radii[1] + radii[0] @ np.abs(middles[1]) + radii[0] @ radii[1]
    nonzero = [(np.abs(m) + r > 0) | u for m, r, u in zip(middles, radii, unknown, strict=True)]
    lost = (unknown[0] @ nonzero[1]) | (nonzero[0] @ unknown[1])
    low, high = np.where(lost, -np.inf, middle - radius), np.where(lost, np.inf, middle + radius)
    return Interval(low[..., 0], high[..., 0]) if is_vector else Interval(low, high)


def _increasing(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[_Numbers], Interval]:
    """Return an increasing function of intervals."""

    def apply(x: _Numbers) -> Interval:
        x = Interval.exact(x)
        with np.errstate(all="ignore"):
            low, high = function(x.low), function(x.high)
        return Interval(np.where(x.is_known, low, -np.inf), np.where(x.is_known, high, np.inf))

    return apply


exp, tanh, log, sign = _increasing(np.exp), _increasing(np.tanh), _increasing(np.log), _increasing(np.sign)
erf = _increasing(np.vectorize(math.erf, otypes=[float]))
sqrt = _increasing(lambda x: np.asarray(np.sqrt(np.maximum(x, 0.0))))


def abs(x: _Numbers) -> Interval:
    """Return absolute values."""
    x = Interval.exact(x)
    contains_zero = (x.low <= 0) & (x.high >= 0)
    ends = np.abs(x.low), np.abs(x.high)
    return Interval(np.where(contains_zero, 0.0, np.minimum(*ends)), np.maximum(*ends))


def _wave(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[_Numbers], Interval]:
    """Return sine or cosine of intervals: exact for exact numbers, else between -1 and 1."""

    def apply(x: _Numbers) -> Interval:
        exact = x.low == x.high
        return Interval(np.where(exact, function(x.low), -1.0), np.where(exact, function(x.high), 1.0))

    return apply


sin, cos = _wave(np.sin), _wave(np.cos)


def square(x: _Numbers) -> Interval:
    """Return squares, which are never negative."""
    size = abs(x)
    return Interval(size.low**2, size.high**2)


def maximum(x: _Numbers, y: _Numbers) -> Interval:
    """Return the larger of two numbers."""
    x, y = Interval.exact(x), Interval.exact(y)
    return Interval(np.maximum(x.low, y.low), np.maximum(x.high, y.high))


def asarray(numbers: _Numbers, dtype: object = None) -> object:
    """Return numbers as intervals of width zero, truth values as they are."""
    return numbers if getattr(numbers, "dtype", None) == np.bool else Interval.exact(numbers)


def _on_bounds(function: Callable[..., np.ndarray]) -> Callable[..., object]:
    """Return a function that applies to lower and upper bounds separately; of plain arrays, the function itself."""

    def apply(x: _Numbers, *args: object, **kwargs: object) -> object:
        if not isinstance(x, Interval):
            return function(x, *args, **kwargs)
        return _closed(function(x.low, *args, **kwargs), function(x.high, *args, **kwargs))

    return apply


sum, max, mean, astype = _on_bounds(np.sum), _on_bounds(np.max), _on_bounds(np.mean), _on_bounds(np.astype)
reshape, moveaxis, matrix_transpose = _on_bounds(np.reshape), _on_bounds(np.moveaxis), _on_bounds(np.matrix_transpose)
zeros_like, ones_like, broadcast_to = _on_bounds(np.zeros_like), _on_bounds(np.ones_like), _on_bounds(np.broadcast_to)


def where(condition: np.ndarray, x: _Numbers, y: _Numbers) -> Interval:
    """Return x where the condition holds, else y."""
    x, y = Interval.exact(x), Interval.exact(y)
    return Interval(np.where(condition, x.low, y.low), np.where(condition, x.high, y.high))


def concat(arrays: list[_Numbers], *, axis: int = 0) -> Interval:
    """Join intervals along an axis."""
    parts = [Interval.exact(array) for array in arrays]
    return Interval(*(np.concat([getattr(part, end) for part in parts], axis=axis) for end in ("low", "high")))


def isfinite(x: _Numbers) -> np.ndarray:
    """Return where both bounds are finite."""
    x = Interval.exact(x)
    return np.asarray(np.isfinite(x.low) & np.isfinite(x.high))
