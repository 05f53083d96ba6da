"""Parser of one hand-written cell: a number, an expression, a sum of symbolic terms, a mask sign or a blank.

Numbers may be written as `0.71`, `.71`, `0,71`, `40 %`, `1/2`, `½`, `√2`, `2√2`, `e^0.71`, `1.2e-3`, or in LaTeX
(`\\frac{1}{2}`, `\\sqrt{2}`). A plain number matches every value that rounds to it. In an expression whole
numbers are exact and decimals match every value that rounds to them: `1/5.06` is any quotient of 1 and a number that
rounds to 5.06, so expressions are evaluated in interval arithmetic.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import product
from typing import NoReturn

from peasy.errors import InvalidInput

MAX_CELL_LENGTH = 200
"""Maximum length of a cell in characters."""

FLOAT_TOLERANCE = 1e-9
"""Relative tolerance for floating-point error."""


class CellMark(Enum):
    """Cell without a number: masked (`x`, `×`, `-∞`), blank, or something that cannot be read."""

    MASKED = "masked"
    BLANK = "blank"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class WrittenNumber:
    """Written number: every value from `low` to `high` rounds to it. `decimals` is None if exact."""

    value: float
    low: float
    high: float
    decimals: int | None = None

    def map(self, function: Callable[[float], float]) -> "WrittenNumber":
        """Apply an increasing function."""
        return WrittenNumber(function(self.value), function(self.low), function(self.high))

    def combine(self, operation: Callable[[float, float], float], other: "WrittenNumber") -> "WrittenNumber":
        """Apply an operation that is monotonic in each argument: the bounds are reached at the corners."""
        corners = [operation(x, y) for x, y in product((self.low, self.high), (other.low, other.high))]
        return WrittenNumber(operation(self.value, other.value), min(corners), max(corners))

    def is_rounding_of(self, exact: float) -> bool:
        """True if `exact` rounds to this number (halves may round either way)."""
        return self.may_be(exact, exact)

    def may_be(self, low: float, high: float) -> bool:
        """True if some number from `low` to `high` rounds to this number."""
        noise = FLOAT_TOLERANCE * (1 + abs(low))
        return math.isfinite(low) and math.isfinite(high) and self.low - noise <= high and low <= self.high + noise

    def may_be_cut(self, low: float, high: float) -> bool:
        """True if some number from `low` to `high`, truncated instead of rounded, gives this number."""
        unit = 0.0 if self.decimals is None else 10.0**-self.decimals * (1 - FLOAT_TOLERANCE)
        if not math.isfinite(low) or not math.isfinite(high):
            return False
        above = self.value >= 0 and low < self.value + unit and high > self.value
        below = self.value <= 0 and high > self.value - unit and low < self.value
        return above or below

    def at_decimals(self, decimals: int) -> "WrittenNumber":
        """Return the number as if it were written with this many decimals: 0.4 as 0.40."""
        half = 0.5 * 10.0**-decimals
        return WrittenNumber(self.value, self.value - half, self.value + half, decimals)

    def times(self, factor: float, more_decimals: int) -> "WrittenNumber":
        """Return the number times a positive factor, such as 1/100 for a number in percent."""
        decimals = None if self.decimals is None else self.decimals + more_decimals
        return WrittenNumber(self.value * factor, self.low * factor, self.high * factor, decimals)


@dataclass(frozen=True)
class SymbolicTerm:
    """Symbolic product with an optional number before it: `0.4*v_0`, `q_3*k_2`."""

    factor: WrittenNumber | None
    names: tuple[str, ...]

    def __str__(self) -> str:
        parts = [] if self.factor is None else [f"{self.factor.value:g}"]
        return "*".join([*parts, *self.names])


CellContent = WrittenNumber | tuple[SymbolicTerm, ...] | CellMark

_BLANK = re.compile(r"[\s_.·…⋮⋯⋱?\-–—]*")
_MASKED = re.compile(r"[xX×✗✘]|\*|[-−]\s*(inf(inity|ty)?|∞)", re.IGNORECASE)
_NOT_A_NUMBER = re.compile(r"[+-]?\s*(nan|inf(inity|ty)?|∞)", re.IGNORECASE)
_PLAIN = re.compile(r"([+-]?)\s*(\d+(?:[.,]\d*)?|[.,]\d+)(?:e([+-]?\d{1,3}))?\s*(%?)", re.IGNORECASE)
_NAME = re.compile(r"[^\W\d][^\s+*/^(){}=]*|<[^\s<>]+>")
_FRACTIONS = str.maketrans(
    {"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅙": " 1/6", "⅛": " 1/8"}
)
_SUBSCRIPTS = str.maketrans({chr(0x2080 + digit): str(digit) for digit in range(10)})
_NOTATIONS = (
    (r"\\(?:[dt]?frac)\b", " frac"), (r"\\sqrt\b", "√"), (r"\bsqrt\b", "√"), (r"\\(?:cdot|times|ast)\b", "*"),
    (r"\\(?:approx|simeq)\b", "="), (r"\\(?:infty)\b", "∞"), (r"\\(?:l|c|v|d)?dots\b", "…"), (r"\\%", "%"),
    (r"\\(?:left|right|displaystyle|hphantom|phantom|quad|qquad)\b", " "), (r"\\(?:exp)\b", "exp"), (r"\\[,;:! ]", " "),
    (r"\\(?:mathbf|mathrm|mathit|textbf|textit|text|emph|underline|boxed)\s*\{([^{}]*)\}", r"\1"),
    (r"\{,\}", ","), (r"\\_", "_"), (r"[−‒]", "-"), (r"[·⋅∗]", "*"), (r"[≈≃]", "="), (r"[$`~]|\*\*", " "),
)  # fmt: skip


def read_cell(written: str | int | float, where: str = "this cell") -> CellContent:
    """Parse the text of a cell.

    >>> read_cell("0.71").is_rounding_of(0.7071), read_cell("40 %").value, read_cell("1/√2").value
    (True, 0.4, 0.7071067811865475)
    >>> read_cell("×"), read_cell("__"), [str(term) for term in read_cell("0.4*v_0 + 0.6*v_1")]
    (<CellMark.MASKED: 'masked'>, <CellMark.BLANK: 'blank'>, ['0.4*v_0', '0.6*v_1'])
    """
    text = str(written)
    if len(text) > MAX_CELL_LENGTH:
        raise InvalidInput(f"{where} has {len(text)} characters.", hint=f"A cell has at most {MAX_CELL_LENGTH}.")
    for normalise in (str.strip, _last_side):
        text = normalise(text)
        if _BLANK.fullmatch(text):
            return CellMark.BLANK
        if _MASKED.fullmatch(text):
            return CellMark.MASKED
        if plain := _PLAIN.fullmatch(text):
            return _parse_plain_number(plain, written, where)
    if _NOT_A_NUMBER.fullmatch(text):
        _raise_unreadable(written, where)
    if (number := evaluate(text)) is not None:
        return number
    terms = tuple(_parse_term(piece, written, where) for piece in re.split(r"\s*\+\s*", text) if piece)
    return terms or _raise_unreadable(written, where)


@lru_cache(maxsize=20_000)
def read_or_mark(text: str) -> CellContent:
    """Parse the text of a cell; what cannot be read is marked, and the rest of the table is still checked."""
    try:
        return read_cell(text)
    except InvalidInput:
        return CellMark.UNREADABLE


def read_number(text: str) -> WrittenNumber | None:
    """Return the number of a cell, or None if it holds none."""
    content = read_or_mark(text)
    return content if isinstance(content, WrittenNumber) else None


def normalise_notation(text: str) -> str:
    """Return a text with LaTeX and typographic signs in the notation that `evaluate` reads."""
    text = text.translate(_FRACTIONS).translate(_SUBSCRIPTS)
    for pattern, plain in _NOTATIONS:
        text = re.sub(pattern, plain, text)
    return text


def _last_side(text: str) -> str:
    return normalise_notation(text).rsplit("=", 1)[-1].strip()


def _parse_plain_number(match: re.Match[str], written: object, where: str) -> WrittenNumber:
    sign, digits, exponent, percent = match.groups()
    digits = digits.replace(",", ".")
    decimals = len(digits.partition(".")[2]) - int(exponent or 0) + (2 if percent else 0)
    value = float(f"{sign}{digits}e{int(exponent or 0) - (2 if percent else 0)}")
    if not abs(value) < 1e300 or abs(decimals) > 300:
        _raise_unreadable(written, where)
    half = 0.5 * 10.0**-decimals
    return WrittenNumber(value, value - half, value + half, decimals)


def _parse_term(text: str, written: object, where: str) -> SymbolicTerm:
    factor: WrittenNumber | None = None
    names: list[str] = []
    for piece in re.sub(r"_\{(\w+)\}", r"_\1", text).replace("*", " ").split():
        plain = _PLAIN.fullmatch(piece)
        if plain and factor is None and not names:
            factor = _parse_plain_number(plain, written, where)
        elif _NAME.fullmatch(piece):
            names.append(re.sub(r"^([qkvQKV])_?(\d+)$", lambda match: f"{match[1].lower()}_{match[2]}", piece))
        else:
            _raise_unreadable(written, where)
    if not names:
        _raise_unreadable(written, where)
    return SymbolicTerm(factor, tuple(names))


def _raise_unreadable(written: object, where: str) -> NoReturn:
    excerpt = str(written) if len(str(written)) <= 40 else str(written)[:37] + "..."
    raise InvalidInput(
        f'{where}: "{excerpt}" cannot be read as a number.',
        hint="Write 0.71, 40 %, 1/2, √2 or e^0.71; x for a masked cell; leave a cell without an answer empty.",
    )


class _NotAnExpression(Exception):
    """The text is not an expression."""


_MAX_DEPTH = 20
"""Maximum nesting depth of brackets."""
_TOKEN = re.compile(r"\s*(?:(\d+(?:[.,]\d*)?|[.,]\d+)|(frac|exp|√|e(?=\s*\^))|([-+*×/^(){}%]))")


def evaluate(text: str) -> WrittenNumber | None:
    """Evaluate an expression, or return None if the text is not one.

    >>> evaluate("2√2").value, evaluate("1/5.06").high > 1 / 5.06, evaluate("love")
    (2.8284271247461903, True, None)
    """
    try:
        parser = _ExpressionParser(text.rstrip())
        interval = parser.sum()
        return interval if not parser.next and math.isfinite(interval.low) and math.isfinite(interval.high) else None
    except (_NotAnExpression, ArithmeticError, ValueError):
        return None


class _ExpressionParser:
    """Recursive-descent parser of sums of products of powers."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.depth = position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                raise _NotAnExpression
            self.tokens.append(match[1] or match[2] or match[3])
            position = match.end()
        self.tokens.reverse()

    @property
    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def accept(self, *tokens: str) -> str:
        """Return the next token and go on if it is one of these, else ""."""
        return self.tokens.pop() if self.next in tokens else ""

    def sum(self) -> WrittenNumber:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotAnExpression
        total = self.product()
        while sign := self.accept("+", "-"):
            total = total.combine(operator.add if sign == "+" else operator.sub, self.product())
        self.depth -= 1
        return total

    def product(self) -> WrittenNumber:
        result = self.power()
        while True:
            if self.accept("*", "×") or self.next in ("√", "e", "exp", "frac", "("):
                result = result.combine(operator.mul, self.power())
            elif self.accept("/"):
                result = self.quotient(result, self.power())
            else:
                return result

    def quotient(self, above: WrittenNumber, below: WrittenNumber) -> WrittenNumber:
        if below.low <= 0 <= below.high:
            raise _NotAnExpression
        return above.combine(operator.truediv, below)

    def signed(self, parse: Callable[[], WrittenNumber]) -> WrittenNumber:
        sign = {"-": -1.0, "+": 1.0}[self.accept("-", "+")]
        return WrittenNumber(sign, sign, sign).combine(operator.mul, parse())

    def power(self) -> WrittenNumber:
        if self.next in ("-", "+"):
            return self.signed(self.power)
        base = self.atom()
        if self.accept("^"):
            if base.low <= 0:
                raise _NotAnExpression
            base = base.combine(operator.pow, self.signed(self.atom) if self.next in ("-", "+") else self.atom())
        return base.map(lambda number: number / 100) if self.accept("%") else base

    def atom(self) -> WrittenNumber:
        piece = self.tokens.pop() if self.tokens else ""
        if piece in ("(", "{"):
            inner = self.sum()
            if not self.accept({"(": ")", "{": "}"}[piece]):
                raise _NotAnExpression
            return inner
        if piece == "frac":
            return self.quotient(self.atom(), self.atom())
        if piece == "√":
            under = self.atom()
            return WrittenNumber(math.sqrt(under.value), math.sqrt(max(under.low, 0.0)), math.sqrt(under.high))
        if piece == "exp":
            return self.atom().map(math.exp)
        if piece == "e":
            return WrittenNumber(math.e, math.e, math.e)
        if piece[:1] not in "0123456789.," or not piece:
            raise _NotAnExpression
        number = float(piece.replace(",", "."))
        decimals = len(piece.replace(",", ".").partition(".")[2])
        half = 0.5 * 10.0**-decimals if not piece.isdigit() else 0.0
        return WrittenNumber(number, number - half, number + half)
