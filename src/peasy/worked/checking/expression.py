"""Interval arithmetic for expressions in a cell, such as `1/2`, `2√2`, `e^0.71/5.06`.

Bounds are needed because decimals in an expression were rounded by the author: `1/5.06` means
any quotient of 1 and a number that rounds to 5.06.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

DEEPEST = 20
"""Maximum nesting depth of brackets."""

_PIECE = re.compile(r"\s*(?:(\d+(?:[.,]\d*)?|[.,]\d+)|(frac|exp|√|e(?=\s*\^))|([-+*/^(){}%]))")


@dataclass(frozen=True)
class Extent:
    """Interval with a central value."""

    value: float
    low: float
    high: float


class _Unreadable(Exception):
    """The text is not an expression."""


def evaluate(text: str) -> Extent | None:
    """Evaluate an expression, or return None if the text is not one.

    >>> evaluate("2√2").value, evaluate("1/5.06").high > 1 / 5.06, evaluate("love")
    (2.8284271247461903, True, None)
    """
    try:
        parser = _Reader(_pieces(text))
        interval = parser.sum()
        return interval if parser.done and math.isfinite(interval.low) and math.isfinite(interval.high) else None
    except (_Unreadable, ArithmeticError, ValueError):
        return None


def _pieces(text: str) -> list[str]:
    pieces, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _PIECE.match(text, position)
        if not match:
            raise _Unreadable
        pieces.append(match[1] or match[2] or match[3])
        position = match.end()
    return pieces


def _number(piece: str) -> Extent:
    digits = piece.replace(",", ".")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) if "." in digits else 0.0
    return Extent(float(digits), float(digits) - half, float(digits) + half)


def _combine(operation: Callable[[float, float], float], a: Extent, b: Extent) -> Extent:
    """Apply an operation that is monotonic in each argument: the bounds are reached at the corners."""
    corners = [operation(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
    return Extent(operation(a.value, b.value), min(corners), max(corners))


class _Reader:
    """Recursive-descent parser of sums of products of powers."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces, self.place, self.depth = pieces, 0, 0

    @property
    def next(self) -> str:
        return self.pieces[self.place] if self.place < len(self.pieces) else ""

    @property
    def done(self) -> bool:
        return self.place == len(self.pieces)

    def take(self) -> str:
        piece = self.next
        self.place += 1
        return piece

    def sum(self) -> Extent:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unreadable
        total = self.product()
        while self.next in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            total = _combine(lambda a, b, sign=sign: a + sign * b, total, self.product())  # type: ignore[misc]
        self.depth -= 1
        return total

    def product(self) -> Extent:
        result = self.power()
        while True:
            if self.next == "*":
                self.take()
                result = _combine(lambda a, b: a * b, result, self.power())
            elif self.next == "/":
                self.take()
                result = self.quotient(result, self.power())
            elif self.next in ("√", "e", "exp", "frac", "("):
                result = _combine(lambda a, b: a * b, result, self.power())
            else:
                return result

    def quotient(self, above: Extent, below: Extent) -> Extent:
        if below.low <= 0 <= below.high:
            raise _Unreadable
        return _combine(lambda a, b: a / b, above, below)

    def power(self) -> Extent:
        if self.next in ("-", "+"):
            sign = -1.0 if self.take() == "-" else 1.0
            return _combine(lambda a, b: a * b, Extent(sign, sign, sign), self.power())
        base = self.atom()
        if self.next == "^":
            self.take()
            if base.low <= 0:
                raise _Unreadable
            base = _combine(lambda a, b: a**b, base, self.atom_with_sign())
        if self.next == "%":
            self.take()
            base = Extent(base.value / 100, base.low / 100, base.high / 100)
        return base

    def atom_with_sign(self) -> Extent:
        if self.next in ("-", "+"):
            sign = -1.0 if self.take() == "-" else 1.0
            return _combine(lambda a, b: a * b, Extent(sign, sign, sign), self.atom())
        return self.atom()

    def atom(self) -> Extent:
        piece = self.take()
        if piece in ("(", "{"):
            inner = self.sum()
            if self.take() != {"(": ")", "{": "}"}[piece]:
                raise _Unreadable
            return inner
        if piece == "frac":
            return self.quotient(self.atom(), self.atom())
        if piece == "√":
            under = self.atom()
            return Extent(math.sqrt(under.value), math.sqrt(max(under.low, 0.0)), math.sqrt(under.high))
        if piece == "exp":
            inner = self.atom()
            return Extent(math.exp(inner.value), math.exp(inner.low), math.exp(inner.high))
        if piece == "e":
            return Extent(math.e, math.e, math.e)
        if piece and piece[0] in "0123456789.,":
            return _number(piece)
        raise _Unreadable
