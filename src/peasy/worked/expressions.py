"""Arrays of expressions: the cells of other nodes as symbols, with the array-API functions that the steps use.

The steps of a worked example run on expressions as they run on NumPy arrays, with this module as their namespace; what
comes out is the formula of every cell, for a spreadsheet or in symbols. Every expression knows its value, so that a
step may still look at numbers, and cells that are constant (0, 1, masked scores) are folded.
"""

import builtins
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from peasy.parameters import Record
from peasy.worked.graph import Graph

inf, nan, float64, finfo, arange = np.inf, np.nan, np.float64, np.finfo, np.arange

Reference = Callable[[str, int, int], str]
"""Writes the cell of a node: its address in a spreadsheet, or its symbol."""

_Operand = Any  # an Expression or a number
_Cells = Any  # an ExpressionArray, an array or a number

_PRECEDENCE = {"=": 1, "<>": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "+": 2, "-": 2, "*": 3, "/": 3, "^": 4}
_ATOM = 5
"""Precedence of what needs no brackets: a cell, a number, a function."""


class Expression(Record, eq=False):
    """Formula of one number: an operator or function of operands, or the `cell` (node, row, column) of a node."""

    name: str
    operands: tuple[_Operand, ...]
    value: float
    cell: tuple[str, int, int] | None = None

    def __bool__(self) -> bool:
        return self.value != 0

    def __float__(self) -> float:
        return self.value


def _is_positive(operand: _Operand) -> bool:
    """True if no change of a cell can make a number zero: one above 0, a power of e, or a sum of them."""
    if not isinstance(operand, Expression):
        return bool(operand > 0)
    return operand.name == "EXP" or (operand.name == "+" and builtins.all(map(_is_positive, operand.operands)))


def _value(operand: _Operand) -> float:
    return operand.value if isinstance(operand, Expression) else float(operand)


def _apply(name: str, function: Callable[..., Any], *operands: _Operand) -> _Operand:
    """Return a function of operands: a number if all of them are numbers, else an expression."""
    with np.errstate(all="ignore"):
        value = float(function(*map(_value, operands)))
    return Expression(name, operands, value) if builtins.any(isinstance(o, Expression) for o in operands) else value


def _add(*terms: _Operand) -> _Operand:
    """Return a flat sum; terms that are 0 are left out."""
    flat: list[_Operand] = []
    for term in terms:
        flat += term.operands if isinstance(term, Expression) and term.name == "+" else [term]
    symbols = [term for term in flat if isinstance(term, Expression)]
    constant = builtins.sum(float(term) for term in flat if not isinstance(term, Expression))
    if math.isinf(constant):
        return constant
    kept = [*symbols, *([constant] if constant or not symbols else [])]
    return kept[0] if len(kept) == 1 else Expression("+", tuple(kept), builtins.sum(map(_value, kept)))


def _multiply(left: _Operand, right: _Operand) -> _Operand:
    for one, other in ((left, right), (right, left)):
        if not isinstance(one, Expression) and one in (0, 1):
            return other if one == 1 else 0.0
    return _apply("*", operator.mul, left, right)


def _divide(left: _Operand, right: _Operand) -> _Operand:
    if not isinstance(right, Expression) and right == 1:
        return left
    return 0.0 if not isinstance(left, Expression) and left == 0 else _apply("/", np.divide, left, right)


def _subtract(left: _Operand, right: _Operand) -> _Operand:
    if not isinstance(right, Expression):
        return _add(left, -right)
    if not isinstance(left, Expression) and (left == 0 or math.isinf(left)):
        return left or _multiply(-1.0, right)
    return _apply("-", operator.sub, left, right)


def _equal(left: _Operand, right: _Operand) -> _Operand:
    for one, other in ((left, right), (right, left)):
        if not isinstance(one, Expression) or isinstance(other, Expression):
            continue
        if math.isinf(other) or (other == 0 and _is_positive(one)):
            return False  # a cell is finite, and a power of e is never 0
    return _apply("=", operator.eq, left, right)


def _choose(condition: _Operand, yes: _Operand, no: _Operand) -> _Operand:
    if not isinstance(condition, Expression):
        return yes if condition else no
    return Expression("IF", (condition, yes, no), _value(yes if condition else no))


def _extreme(name: str, choose: Callable[..., float], *operands: _Operand) -> _Operand:
    """Return the largest or smallest; masked scores (-∞) are left out."""
    kept = [o for o in operands if isinstance(o, Expression) or not math.isinf(o)] or operands[:1]
    return kept[0] if len(kept) == 1 else _apply(name, lambda *numbers: choose(numbers), *kept)


def _not(condition: _Operand) -> _Operand:
    return _apply("NOT", lambda value: not value, condition)


def _logical(name: str, *conditions: _Operand) -> _Operand:
    """Return AND or OR of conditions; one that is known decides, or is left out."""
    deciding = name == "OR"
    unknown = [condition for condition in conditions if isinstance(condition, Expression)]
    known = [condition != 0 for condition in conditions if not isinstance(condition, Expression)]
    if deciding in known or not unknown:
        return deciding if deciding in known else not deciding
    choose = builtins.any if deciding else builtins.all
    return unknown[0] if len(unknown) == 1 else _apply(name, lambda *values: choose(values), *unknown)


def _elementwise(function: Callable[..., _Operand], inputs: int) -> Callable[..., "ExpressionArray"]:
    """Return a function of cells as a function of arrays, which are broadcast."""
    over_cells = np.frompyfunc(function, inputs, 1)
    return lambda *arrays: ExpressionArray(over_cells(*(ExpressionArray(array).cells for array in arrays)))


def _comparison(sign: str, function: Callable[..., object]) -> Callable[..., "ExpressionArray"]:
    return _elementwise(lambda left, right: _apply(sign, function, left, right), 2)


class ExpressionArray:
    """Array of expressions and numbers."""

    __array_ufunc__ = None  # NumPy arrays on the left leave the operation to this class
    device = None
    dtype = np.dtype(float)

    def __init__(self, cells: _Cells) -> None:
        self.cells: np.ndarray = cells.cells if isinstance(cells, ExpressionArray) else np.asarray(cells, object)

    @classmethod
    def of_node(cls, name: str, values: np.ndarray) -> "ExpressionArray":
        """Return the cells of a node as symbols; a masked score (-∞) stays a number."""
        cells = np.empty(values.shape, object)
        for (row, column), value in np.ndenumerate(values):
            known = float(value)
            cells[row, column] = Expression("", (), known, (name, row, column)) if math.isfinite(known) else known
        return cls(cells)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        return sys.modules[__name__]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.cells.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.cells.ndim

    @property
    def values(self) -> np.ndarray:
        """The value of every expression."""
        return np.asarray(np.vectorize(_value, otypes=[float])(self.cells))

    def __getitem__(self, index: Any) -> "ExpressionArray":
        return ExpressionArray(self.cells[index])

    def __matmul__(self, other: _Cells) -> "ExpressionArray":
        left, right = self.cells, ExpressionArray(other).cells
        columns = right[:, None] if right.ndim == 1 else right
        added = _reduce(_add, ExpressionArray(left[..., :, None]) * columns, axis=-2)
        return added[..., 0] if right.ndim == 1 else added

    def __rmatmul__(self, other: _Cells) -> "ExpressionArray":
        return ExpressionArray(other) @ self

    __add__, __mul__ = _elementwise(_add, 2), _elementwise(_multiply, 2)
    __radd__, __rmul__ = __add__, __mul__
    __sub__, __truediv__ = _elementwise(_subtract, 2), _elementwise(_divide, 2)
    __rsub__ = _elementwise(lambda right, left: _subtract(left, right), 2)
    __rtruediv__ = _elementwise(lambda right, left: _divide(left, right), 2)
    __pow__ = _elementwise(lambda left, right: _apply("^", operator.pow, left, right), 2)
    __neg__ = _elementwise(lambda cell: _multiply(-1.0, cell), 1)
    __lt__, __le__ = _comparison("<", operator.lt), _comparison("<=", operator.le)
    __gt__, __ge__ = _comparison(">", operator.gt), _comparison(">=", operator.ge)
    __eq__ = _elementwise(_equal, 2)  # type: ignore[assignment]
    __ne__ = _elementwise(lambda left, right: _not(_equal(left, right)), 2)  # type: ignore[assignment]
    __invert__ = _elementwise(_not, 1)
    __and__ = _elementwise(lambda left, right: _logical("AND", left, right), 2)
    __or__ = _elementwise(lambda left, right: _logical("OR", left, right), 2)
    __rand__, __ror__ = __and__, __or__

    def __bool__(self) -> bool:
        return builtins.all(map(_value, self.cells.ravel()))


def _function(name: str, function: Callable[[float], float]) -> Callable[[_Cells], ExpressionArray]:
    return _elementwise(lambda operand: _apply(name, function, operand), 1)


exp, log, sqrt, tanh = (
    _function(name, function)
    for name, function in (("EXP", np.exp), ("LN", np.log), ("SQRT", np.sqrt), ("TANH", np.tanh))
)
sin, cos, abs, sign, erf = (
    _function(name, function)
    for name, function in (("SIN", np.sin), ("COS", np.cos), ("ABS", np.abs), ("SIGN", np.sign), ("ERF", math.erf))
)
square = _elementwise(lambda operand: _apply("^", operator.pow, operand, 2.0), 1)
maximum = _elementwise(lambda left, right: _extreme("MAX", builtins.max, left, right), 2)
where = _elementwise(_choose, 3)
isfinite = _elementwise(lambda operand: isinstance(operand, Expression) or math.isfinite(operand), 1)


def _reduce(
    function: Callable[..., _Operand], array: _Cells, axis: int | None = None, keepdims: bool = False
) -> ExpressionArray:  # fmt: skip
    """Apply a function to all cells along an axis, or to all cells."""
    cells = ExpressionArray(array).cells
    lines = cells.reshape(-1, cells.size) if axis is None else np.moveaxis(cells, axis, -1)
    out = np.empty(lines.shape[:-1], object)
    for index in np.ndindex(out.shape):
        out[index] = function(*lines[index])
    if axis is None:
        return ExpressionArray(out.reshape((1,) * cells.ndim if keepdims else ()))
    return ExpressionArray(np.expand_dims(out, axis) if keepdims else out)


sum = partial(_reduce, _add)
mean = partial(_reduce, lambda *cells: _divide(_add(*cells), float(len(cells))))
max = partial(_reduce, lambda *cells: _extreme("MAX", builtins.max, *cells))
any, all = (partial(_reduce, partial(_logical, name)) for name in ("OR", "AND"))


def _on_cells(function: Callable[..., np.ndarray]) -> Callable[..., ExpressionArray]:
    return lambda array, *args, **kwargs: ExpressionArray(function(ExpressionArray(array).cells, *args, **kwargs))


reshape, moveaxis, matrix_transpose = _on_cells(np.reshape), _on_cells(np.moveaxis), _on_cells(np.matrix_transpose)
broadcast_to, repeat = _on_cells(np.broadcast_to), _on_cells(np.repeat)
zeros_like, ones_like = (_on_cells(lambda cells, value=value: np.full(cells.shape, value)) for value in (0.0, 1.0))


def asarray(array: _Cells, dtype: object = None) -> ExpressionArray:
    """Return numbers as an array of expressions."""
    return ExpressionArray(array)


def astype(array: _Cells, dtype: object, *, copy: bool = True) -> ExpressionArray:
    """Return conditions as 1 and 0; numbers stay."""

    def convert(cell: _Operand) -> _Operand:
        if not isinstance(cell, Expression):
            return float(cell)
        is_condition = _PRECEDENCE.get(cell.name) == 1 or cell.name in ("AND", "OR", "NOT")
        return _choose(cell, 1.0, 0.0) if is_condition else cell

    return _elementwise(convert, 1)(array)


def concat(arrays: Sequence[_Cells], *, axis: int = 0) -> ExpressionArray:
    """Join arrays along an axis."""
    return ExpressionArray(np.concatenate([ExpressionArray(array).cells for array in arrays], axis=axis))


def cell_formulas(graph: Graph, values: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    """Return the formula of every cell of a node in the cells of its inputs; None if it is given or has no formula."""
    if (route := graph.route(name, values)) is None:
        return None
    inputs = [ExpressionArray.of_node(parent, values[parent]) for parent in route.inputs]
    try:
        return ExpressionArray(route.step.forward(sys.modules[__name__], *inputs)).cells
    except (AttributeError, TypeError):  # sorting, drawing: no formula of a spreadsheet
        return None


_SYMBOLS = {"EXP": "exp", "LN": "ln", "SQRT": "√", "TANH": "tanh", "SIN": "sin", "COS": "cos", "ERF": "erf"}


def spreadsheet_formula(expression: _Operand, reference: Reference) -> str:
    """Write an expression as a formula of a spreadsheet, without the leading `=`.

    >>> cells = ExpressionArray.of_node("x", np.asarray([[1.0, 2.0]]))
    >>> power = exp(cells - max(cells, axis=-1, keepdims=True)).cells[0, 1]
    >>> spreadsheet_formula(power, lambda name, row, column: f"{'AB'[column]}{row + 1}")
    'EXP(B1-MAX(A1,B1))'
    """
    return _write(expression, reference, {}, "")


def symbolic_formula(expression: _Operand, reference: Reference) -> str:
    """Write an expression in symbols: `exp(x_0) / (exp(x_0) + exp(x_1))`."""
    return _write(expression, reference, _SYMBOLS, " ")


def _write(expression: _Operand, reference: Reference, names: dict[str, str], space: str) -> str:
    if not isinstance(expression, Expression):
        number = float(expression)
        is_whole = number.is_integer() and math.fabs(number) < 1e15
        return str(int(number)) if is_whole else f"{number:.4g}" if names else repr(number)
    if expression.cell is not None:
        return reference(*expression.cell)
    if names and expression.name == "EXP":
        expression = Expression("EXP", (_unshifted(expression.operands[0]),), expression.value)
    if expression.name not in _PRECEDENCE:
        inside = f",{space}".join(_write(operand, reference, names, space) for operand in expression.operands)
        return f"{names.get(expression.name, expression.name)}({inside})"
    parts = list(_bracketed(expression, reference, names, space))
    around = "" if expression.name in "*^" else space
    return f"{around}{expression.name}{around}".join(parts).replace("+-", "-").replace("+ -", "- ")


def _unshifted(exponent: _Operand) -> _Operand:
    """Return the exponent of a softmax without the subtracted maximum, which cancels out."""
    is_shifted = isinstance(exponent, Expression) and exponent.name == "-"
    return exponent.operands[0] if is_shifted and getattr(exponent.operands[1], "name", "") == "MAX" else exponent


def _bracketed(expression: Expression, reference: Reference, names: dict[str, str], space: str) -> Iterator[str]:
    own = _PRECEDENCE[expression.name]
    for index, operand in enumerate(expression.operands):
        text = _write(operand, reference, names, space)
        inner = _PRECEDENCE.get(operand.name, _ATOM) if isinstance(operand, Expression) else _ATOM
        strict = index > 0 and expression.name in "-/^"
        negative = text.startswith("-") and (expression.name == "^" or (index > 0 and expression.name != "+"))
        yield f"({text})" if inner < own or (strict and inner == own) or negative else text
