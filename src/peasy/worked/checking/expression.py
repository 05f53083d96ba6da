"""Interval arithmetic for expressions in a cell, such as `1/2`, `2√2`, `e^0.71/5.06`.

Bounds are needed because decimals in an expression were rounded by the author: `1/5.06` means
any quotient of 1 and a number that rounds to 5.06.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

MAX_DEPTH = 20
"""Maximum nesting depth of brackets."""

_TOKEN = re.compile(r"\s*(?:(\d+(?:[.,]\d*)?|[.,]\d+)|(frac|exp|√|e(?=\s*\^))|([-+*/^(){}%]))")


@dataclass(frozen=True)
class Interval:
    """Interval with a central value."""

    value: float
    low: float
    high: float


class _NotAnExpression(Exception):
    """The text is not an expression."""


def evaluate(text: str) -> Interval | None:
    """Evaluate an expression, or return None if the text is not one.

    >>> evaluate("2√2").value, evaluate("1/5.06").high > 1 / 5.06, evaluate("love")
    (2.8284271247461903, True, None)
    """
    try:
        parser = _ExpressionParser(_tokenize(text))
        interval = parser.sum()
        return interval if parser.at_end and math.isfinite(interval.low) and math.isfinite(interval.high) else None
    except (_NotAnExpression, ArithmeticError, ValueError):
        return None


def _tokenize(text: str) -> list[str]:
    pieces, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            raise _NotAnExpression
        pieces.append(match[1] or match[2] or match[3])
        position = match.end()
    return pieces


def _parse_number(token: str) -> Interval:
    digits = token.replace(",", ".")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) if "." in digits else 0.0
    return Interval(float(digits), float(digits) - half, float(digits) + half)


def _combine_monotonic(operation: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    """Apply an operation that is monotonic in each argument: the bounds are reached at the corners."""
    corners = [operation(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
    return Interval(operation(a.value, b.value), min(corners), max(corners))


class _ExpressionParser:
    """Recursive-descent parser of sums of products of powers."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.position, self.depth = tokens, 0, 0

    @property
    def next(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    @property
    def at_end(self) -> bool:
        return self.position == len(self.tokens)

    def advance(self) -> str:
        piece = self.next
        self.position += 1
        return piece

    def sum(self) -> Interval:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _NotAnExpression
        total = self.product()
        while self.next in ("+", "-"):
            sign = 1 if self.advance() == "+" else -1
            total = _combine_monotonic(lambda a, b, sign=sign: a + sign * b, total, self.product())  # type: ignore[misc]
        self.depth -= 1
        return total

    def product(self) -> Interval:
        result = self.power()
        while True:
            if self.next == "*":
                self.advance()
                result = _combine_monotonic(lambda a, b: a * b, result, self.power())
            elif self.next == "/":
                self.advance()
                result = self.quotient(result, self.power())
            elif self.next in ("√", "e", "exp", "frac", "("):
                result = _combine_monotonic(lambda a, b: a * b, result, self.power())
            else:
                return result

    def quotient(self, above: Interval, below: Interval) -> Interval:
        if below.low <= 0 <= below.high:
            raise _NotAnExpression
        return _combine_monotonic(lambda a, b: a / b, above, below)

    def power(self) -> Interval:
        if self.next in ("-", "+"):
            sign = -1.0 if self.advance() == "-" else 1.0
            return _combine_monotonic(lambda a, b: a * b, Interval(sign, sign, sign), self.power())
        base = self.atom()
        if self.next == "^":
            self.advance()
            if base.low <= 0:
                raise _NotAnExpression
            base = _combine_monotonic(lambda a, b: a**b, base, self.atom_with_sign())
        if self.next == "%":
            self.advance()
            base = Interval(base.value / 100, base.low / 100, base.high / 100)
        return base

    def atom_with_sign(self) -> Interval:
        if self.next in ("-", "+"):
            sign = -1.0 if self.advance() == "-" else 1.0
            return _combine_monotonic(lambda a, b: a * b, Interval(sign, sign, sign), self.atom())
        return self.atom()

    def atom(self) -> Interval:
        piece = self.advance()
        if piece in ("(", "{"):
            inner = self.sum()
            if self.advance() != {"(": ")", "{": "}"}[piece]:
                raise _NotAnExpression
            return inner
        if piece == "frac":
            return self.quotient(self.atom(), self.atom())
        if piece == "√":
            under = self.atom()
            return Interval(math.sqrt(under.value), math.sqrt(max(under.low, 0.0)), math.sqrt(under.high))
        if piece == "exp":
            inner = self.atom()
            return Interval(math.exp(inner.value), math.exp(inner.low), math.exp(inner.high))
        if piece == "e":
            return Interval(math.e, math.e, math.e)
        if piece and piece[0] in "0123456789.,":
            return _parse_number(piece)
        raise _NotAnExpression
