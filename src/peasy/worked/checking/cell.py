"""Parser of one hand-written cell: a number, an expression, a sum of symbolic terms, a mask sign or a blank.

Numbers may be written as `0.71`, `.71`, `0,71`, `40 %`, `1/2`, `½`, `√2`, `2√2`, `e^0.71`, `1.2e-3`, or in LaTeX
(`\\frac{1}{2}`, `\\sqrt{2}`). A plain number matches every value that rounds to it. In an expression whole
numbers are exact and decimals match every value that rounds to them: `1/5.06` is any quotient of 1 and a number that
rounds to 5.06, so expressions are evaluated in interval arithmetic.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache, reduce
from itertools import chain, product
from typing import NoReturn

from peasy.errors import InvalidInput
from peasy.parameters import Record

MAX_CELL_LENGTH = 200
"""Maximum length of a cell in characters."""

FLOAT_TOLERANCE = 1e-9
"""Relative tolerance for floating-point error."""


class CellMark(Enum):
    """Cell without a number: masked (`x`, `×`, `-∞`), blank, or something that cannot be read."""

    MASKED = "masked"
    BLANK = "blank"
    UNREADABLE = "unreadable"


class WrittenNumber(Record):
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


class SymbolicTerm(Record):
    """Symbolic product with an optional number before it: `0.4*v_0`, `q_3*k_2`."""

    factor: WrittenNumber | None
    names: tuple[str, ...]

    def __str__(self) -> str:
        parts = [] if self.factor is None else [f"{self.factor.value:g}"]
        return "*".join([*parts, *self.names])


NumberArray = WrittenNumber | tuple["NumberArray", ...]
"""Number, vector or matrix; each row is a tuple."""

_ROW = r"[-+−]?[\d.]+(?:(?:[ \t]+|,[ \t]+)[-+−]?[\d.]+)+"
_ROW_END = re.compile(r"\s*(?:;|\\{1,2})\s*")
_MATRIX = re.compile(rf"\[\s*({_ROW}(?:{_ROW_END.pattern}{_ROW})+)\s*\]")

_TUPLE = re.compile(r"(?<!shape )(?<!size )=\s*\(([-−]?[\d.]+(?:,\s*[-−]?[\d.]+)+)\)")
"""Vector in round brackets: `q = (1, 0)`."""

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
    (r"\\(?:[dt]?frac)\b", " frac"), (r"\\sqrt\b", "√"), (r"\bsqrt\b", "√"), (r"\\(?:cdot|times|ast)(?![a-zA-Z])", "*"),
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


def nest_rows(text: str) -> str:
    """Return a text with matrices whose rows are separated by semicolons or backslashes as nested brackets.

    >>> nest_rows("W = [1 0; 0 1], [0.1, 0.2 \\\\ 0.5, 0.6], [0,5; 0,2]")
    'W = [[1 0], [0 1]], [[0.1, 0.2], [0.5, 0.6]], [0,5; 0,2]'
    """
    text = _TUPLE.sub(lambda match: f"= [{match[1]}]", text)
    return _MATRIX.sub(lambda match: f"[[{_ROW_END.sub('], [', match[1])}]]", text)


def _last_side(text: str) -> str:
    return normalise_notation(text).rsplit("=", 1)[-1].strip()


def _parse_plain_number(match: re.Match[str], written: object, where: str) -> WrittenNumber:
    sign, digits, exponent, percent = match.groups()
    digits = digits.replace(",", ".")
    decimals = len(digits.partition(".")[2]) - int(exponent or 0) + (2 if percent else 0)
    value = float(f"{sign}{digits}e{int(exponent or 0) - (2 if percent else 0)}")
    if not abs(value) < 1e300 or abs(decimals) > 300:
        _raise_unreadable(written, where)
    return WrittenNumber(value, value, value).at_decimals(decimals)


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
    hint = "Write 0.71, 40 %, 1/2, √2 or e^0.71; x for a masked cell; leave a cell without an answer empty."
    raise InvalidInput(f'{where}: "{excerpt}" cannot be read as a number.', hint=hint)


class _NotAnExpression(Exception):
    """The text is not an expression."""


_MAX_DEPTH = 20
"""Maximum nesting depth of brackets."""
_TOKEN, _VECTOR_TOKEN = (
    re.compile(rf"\s*(?:({number}|∞|inf\b)|(frac|exp|softmax|√|e(?=\s*\^)|(?<=\^)T\b)|([-+*×@/^(){{}}\[\],;%]))")
    for number in (r"\d+(?:[.,]\d*)?|[.,]\d+", r"\d+(?:\.\d*)?|\.\d+")
)
"""Tokens of an expression; beside vectors a comma stands between numbers."""
_NEXT_SIGN = re.compile(r"(?<=[\d.\])])\s+(?=[-+][\d.∞i])")
"""Space before a signed number in a vector without commas: `[1 -2]`."""


def evaluate(text: str) -> WrittenNumber | None:
    """Evaluate an expression, or return None if the text is not one.

    >>> evaluate("2√2").value, evaluate("1/5.06").high > 1 / 5.06, evaluate("love")
    (2.8284271247461903, True, None)
    """
    value = evaluate_array(text)
    return value if isinstance(value, WrittenNumber) else None


def evaluate_array(text: str) -> NumberArray | None:
    """Evaluate an expression of numbers, vectors and matrices in brackets, or return None if the text is not one.

    >>> [round(number.value, 2) for number in evaluate_array("softmax([1, 0]/√2)")]
    [0.67, 0.33]
    >>> evaluate_array("0.5*[2, 0] + 0.5*[0, 4]")[1].value, evaluate_array("[1, 2] × [3, 4]").value
    (2.0, 11.0)
    """
    if any(text.count(opening) != text.count(closing) for opening, closing in ("[]", "()", "{}")):
        return None
    try:
        parser = _ExpressionParser(text.rstrip())
        value = parser.sum()
        finite = all(math.isfinite(number.low) and math.isfinite(number.high) for number in numbers_of(value))
        return value if not parser.next and finite else None
    except (_NotAnExpression, ArithmeticError, ValueError):
        return None


def numbers_of(value: NumberArray) -> Iterator[WrittenNumber]:
    """Yield the numbers of an array in order."""
    if isinstance(value, WrittenNumber):
        yield value
    else:
        yield from chain.from_iterable(map(numbers_of, value))


def _elementwise(operation: Callable[[float, float], float], left: NumberArray, right: NumberArray) -> NumberArray:
    """Apply an operation to two arrays of one shape, or to an array and a number."""
    if isinstance(left, WrittenNumber) and isinstance(right, WrittenNumber):
        return left.combine(operation, right)
    if isinstance(left, WrittenNumber):
        return tuple(_elementwise(operation, left, part) for part in _parts(right))
    others = [right] * len(left) if isinstance(right, WrittenNumber) else right
    if len(left) != len(others):
        raise _NotAnExpression
    return tuple(_elementwise(operation, one, other) for one, other in zip(left, others, strict=True))


def _parts(value: NumberArray) -> tuple[NumberArray, ...]:
    return (value,) if isinstance(value, WrittenNumber) else value


def _multiply(left: NumberArray, right: NumberArray) -> NumberArray:
    """Return a product; of two vectors the dot product, of matrices the matrix product."""
    if isinstance(left, WrittenNumber) or isinstance(right, WrittenNumber):
        return _elementwise(operator.mul, left, right)
    if isinstance(left[0], tuple):
        return tuple(_multiply(row, right) for row in left)
    if isinstance(right[0], tuple):
        return tuple(_multiply(left, column) for column in _transpose(right))
    products = _parts(_elementwise(operator.mul, left, right))
    return reduce(lambda total, each: _elementwise(operator.add, total, each), products)


def _transpose(value: NumberArray) -> tuple[NumberArray, ...]:
    """Return the transpose of a matrix; a vector stays as it is."""
    rows = _parts(value)
    return tuple(zip(*map(_parts, rows), strict=True)) if isinstance(rows[0], tuple) else rows


def _map(function: Callable[[float], float], value: NumberArray) -> NumberArray:
    """Apply an increasing function to every number."""
    return value.map(function) if isinstance(value, WrittenNumber) else tuple(_map(function, part) for part in value)


def _negate(value: NumberArray) -> NumberArray:
    if isinstance(value, WrittenNumber):
        return WrittenNumber(-value.value, -value.high, -value.low, value.decimals)
    return tuple(map(_negate, value))


def _softmax(value: NumberArray) -> NumberArray:
    """Return the softmax of a vector, or of every row."""
    rows = _parts(value)
    if any(isinstance(row, tuple) for row in rows):
        return tuple(map(_softmax, rows))
    powers = [number.map(math.exp) for number in numbers_of(value)]
    value_sum, low, high = (math.fsum(getattr(power, end) for power in powers) for end in ("value", "low", "high"))
    return tuple(
        WrittenNumber(p.value / value_sum, p.low / (p.low + high - p.high), p.high / (p.high + low - p.low))
        for p in powers
    )


class _ExpressionParser:
    """Recursive-descent parser of sums of products of powers, of numbers and of arrays in brackets."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.depth = position = 0
        token, text = (_VECTOR_TOKEN, _NEXT_SIGN.sub(",", text)) if "[" in text else (_TOKEN, text)
        while position < len(text):
            match = token.match(text, position)
            if not match:
                raise _NotAnExpression
            self.tokens.append(next(filter(None, match.groups())))
            position = match.end()
        self.tokens.reverse()

    @property
    def next(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def accept(self, *tokens: str) -> str:
        """Return the next token and go on if it is one of these, else ""."""
        return self.tokens.pop() if self.next in tokens else ""

    def sum(self) -> NumberArray:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotAnExpression
        total = self.product()
        while sign := self.accept("+", "-"):
            other = self.product()
            if isinstance(total, tuple) != isinstance(other, tuple):
                raise _NotAnExpression
            total = _elementwise(operator.add if sign == "+" else operator.sub, total, other)
        self.depth -= 1
        return total

    def product(self) -> NumberArray:
        result = self.power()
        while True:
            if self.accept("*", "×", "@") or self.next in ("√", "e", "exp", "frac", "("):
                result = _multiply(result, self.power())
            elif self.accept("/"):
                result = self.quotient(result, self.power())
            else:
                return result

    def quotient(self, above: NumberArray, below: NumberArray) -> NumberArray:
        if isinstance(below, tuple) or below.low <= 0 <= below.high:
            raise _NotAnExpression
        return _elementwise(operator.truediv, above, below)

    def signed(self, parse: Callable[[], NumberArray]) -> NumberArray:
        negative, value = self.accept("-", "+") == "-", parse()
        return _negate(value) if negative else value

    def power(self) -> NumberArray:
        if self.next in ("-", "+"):
            return self.signed(self.power)
        base = self.atom()
        if self.accept("^"):
            if self.accept("T"):
                return _transpose(base)
            exponent = self.signed(self.atom) if self.next in ("-", "+") else self.atom()
            if isinstance(base, tuple) or isinstance(exponent, tuple) or base.low <= 0:
                raise _NotAnExpression
            base = base.combine(operator.pow, exponent)
        return _map(lambda number: number / 100, base) if self.accept("%") else base

    def array(self) -> tuple[NumberArray, ...]:
        """Return the items up to the closing bracket, separated by commas, semicolons or spaces."""
        items = [self.sum()]
        while not self.accept("]"):
            self.accept(",", ";")
            items.append(self.sum())
        if len({len(item) if isinstance(item, tuple) else -1 for item in items}) > 1:
            raise _NotAnExpression
        return tuple(items)

    def atom(self) -> NumberArray:
        piece = self.tokens.pop() if self.tokens else ""
        if piece == "[":
            return self.array()
        if piece in ("(", "{"):
            inner = self.sum()
            if not self.accept({"(": ")", "{": "}"}[piece]):
                raise _NotAnExpression
            return inner
        if piece == "frac":
            return self.quotient(self.atom(), self.atom())
        if piece == "√":
            return _map(lambda number: math.sqrt(max(number, 0.0)), self.atom())
        if piece == "exp":
            return _map(math.exp, self.atom())
        if piece == "softmax":
            return _softmax(self.atom())
        if piece == "e":
            return WrittenNumber(math.e, math.e, math.e)
        if piece in ("∞", "inf"):
            return WrittenNumber(math.inf, math.inf, math.inf)
        if piece[:1] not in "0123456789.," or not piece:
            raise _NotAnExpression
        digits = piece.replace(",", ".")
        exact = WrittenNumber(float(digits), float(digits), float(digits))
        return exact if piece.isdigit() else exact.at_decimals(len(digits.partition(".")[2]))
