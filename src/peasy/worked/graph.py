"""Computation graph of a worked example: named nodes, each computed by a step from other nodes.

A step is written once, over any number type: NumPy arrays of floats or fractions, and intervals. It also gives the
arithmetic of one cell as text, its formula in TeX, and the steps that compute the gradients of its inputs.
Explaining, checking and exercises walk the same graph.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.step import Array, FormulaStep, Namespace
from peasy.parameters import FrozenSettings, Record
from peasy.worked import intervals
from peasy.worked.intervals import Interval
from peasy.worked.label import format_number, format_operand

MAX_TERMS = 16
"""A longer sum is written with its first terms and one term for the rest."""

_T = TypeVar("_T")


class ArithmeticLine(Record):
    """One line of arithmetic; `expressions` are equal expressions, each evaluated a little further."""

    label: str
    expressions: tuple[str, ...]
    value: float
    decimals: int = 4

    @property
    def text(self) -> str:
        """The line as text: `sum: 1 + 2 = 3`."""
        parts = [*self.expressions, format_number(self.value, self.decimals)]
        return f"{self.label}: " + " = ".join(part for i, part in enumerate(parts) if i == 0 or part != parts[i - 1])


class CellContext(Record):
    """One cell of a node with the values of its inputs, and functions that format its arithmetic.

    `keys` are the labels of the key axis; `lines_of(input, row, column)` is the arithmetic of a cell of an input.
    """

    row: int
    column: int
    value: float
    inputs: tuple[np.ndarray, ...]
    keys: tuple[str, ...]
    decimals: int
    lines_of: Callable[[int, int, int], Iterator[ArithmeticLine]]

    def line(self, label: str, *expressions: str, value: float | None = None) -> ArithmeticLine:
        """Return one line of arithmetic; its value is that of the cell unless given."""
        return ArithmeticLine(label, expressions, self.value if value is None else float(value), self.decimals)

    def dot_product(
        self, label: str, left: np.ndarray, right: np.ndarray, value: float | None = None, bias: float | None = None
    ) -> Iterator[ArithmeticLine]:
        """Yield the dot product of two vectors: products, then their sum."""
        pairs = zip(left[:MAX_TERMS], right[:MAX_TERMS], strict=True)
        factors = [f"{self.format_operand(a)}·{self.format_operand(b)}" for a, b in pairs]
        terms = list(left[:MAX_TERMS] * right[:MAX_TERMS])
        if len(left) > MAX_TERMS:
            rest = float(left[MAX_TERMS:] @ right[MAX_TERMS:])
            yield self.line(f"the other {len(left) - MAX_TERMS} products", value=rest)
            factors, terms = [*factors, self.format_operand(rest)], [*terms, rest]
        if bias is not None:
            factors, terms = [*factors, self.format_operand(bias)], [*terms, bias]
        yield self.line(label, " + ".join(factors), self.format_sum(terms), value=value)

    def format_sum(self, terms: Sequence[float]) -> str:
        """Format a sum of numbers."""
        return " + ".join(map(self.format_operand, terms))

    def format(self, number: float) -> str:
        """Format a number."""
        return format_number(number, self.decimals)

    def format_operand(self, number: float) -> str:
        """Format a number inside a sum or product."""
        return format_operand(number, self.decimals)


def operands(row: int, column: int, inputs: Sequence[np.ndarray], decimals: int = 4) -> list[str]:
    """Return the cells of all inputs as operands; a single row or column is repeated."""
    cells = (array[row if array.shape[0] > 1 else 0, column if array.shape[1] > 1 else 0] for array in inputs)
    return [format_operand(float(cell), decimals) for cell in cells]


def in_brackets(symbol: str) -> str:
    """Return a symbol that can be multiplied: a sum in brackets."""
    return rf"\left({symbol}\right)" if " + " in symbol or " - " in symbol else symbol


def _with_script(symbol: str, script: str) -> str:
    r"""Return a symbol with an index or exponent; a second index joins the first, a fraction is in brackets.

    >>> _with_script("X", "_{ij}"), _with_script("R_1", "_{ij}"), _with_script("W_{Q}", r"^{\\top}")
    ('X_{ij}', 'R_{1,ij}', 'W_{Q}^{\\\\top}')
    """
    indexed = re.fullmatch(r"(\\?\w+)_\{?(\w+)\}?", symbol)
    if indexed and script.startswith("_"):
        return f"{indexed[1]}_{{{indexed[2]},{script.strip('_{}')}}}"
    symbol = in_brackets(symbol)
    is_plain = symbol.startswith(r"\left(") or (script[0] not in symbol and r"\frac" not in symbol)
    return (symbol if is_plain else rf"\left({symbol}\right)") + script


class Application(Record):
    """A step as applied in a graph: names of output and inputs, shapes of the inputs, and `gradient`: that of the
    output."""

    output: str
    inputs: tuple[str, ...]
    gradient: str
    shapes: tuple[tuple[int, ...], ...]


class Step(FrozenSettings, ABC):
    """Operation of a node. A new step needs `forward`, `text`, `tex`, `sentence`, and `gradients` if it is trained."""

    label: ClassVar[str] = "result"
    """Label of the line of arithmetic."""
    sentence: ClassVar[str] = ""
    """Plain sentence that says what the step does."""
    output_axes: ClassVar[tuple[str, ...]] = ("0r", "0c")
    """Axes of the output: "0r" are the rows of the first input, "1c" the columns of the second, else a name."""
    text: ClassVar[str] = ""
    """Arithmetic of one cell, with $0, $1 ... for the cells of the inputs, $name for a setting; "" if it is copied."""
    tex: ClassVar[str] = ""
    """Right side of the step's equation in TeX, with $0, $1 ... for the symbols of the inputs."""
    operator: ClassVar[str] = ""
    """Name of the function in TeX if there is no `tex`; "": the label."""
    is_fixed: ClassVar[bool] = False
    """True if it passes no gradient on: its inputs are given, such as targets, or it has none."""

    @abstractmethod
    def forward(self, xp: Namespace, *inputs: Array, **named: Array) -> Array:
        """Return the output for the inputs, with functions of `xp` only, so that every number type works."""

    def summary(self, row: int, column: int, inputs: Sequence[np.ndarray], decimals: int = 4) -> str:
        """Return the arithmetic of one cell in one expression, or "" if the number is only copied."""
        return self._filled(self.text, operands(row, column, inputs, decimals)) if self.text else ""

    def lines(self, cell: CellContext) -> Iterator[ArithmeticLine]:
        """Yield the full arithmetic of one cell, line by line; one line unless a step has more to show."""
        summary = self.summary(cell.row, cell.column, cell.inputs, cell.decimals)
        yield cell.line(self.label, *([summary] if summary else []))

    def formula(self, *symbols: str) -> str:
        """Return the right side of the step's equation in TeX; `symbols` are those of the inputs."""
        if not self.tex:
            return rf"\operatorname{{{self.operator or self.label}}}({', '.join(symbols)})"
        with_index = r"\$(\d+)([_^](?:\{[^{}]*\}|\w))"
        scripted = re.sub(with_index, lambda match: _with_script(symbols[int(match[1])], match[2]), self.tex)
        return self._filled(scripted, list(map(in_brackets, symbols)))

    def _filled(self, template: str, inputs: Sequence[str]) -> str:
        """Return a template with its inputs and settings filled in."""

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            return inputs[int(name)] if name.isdigit() else f"{getattr(self, name):.12g}"

        return re.sub(r"\$(\d+|[a-z_]+)", fill, template)

    def axes(self, *inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the output's axes for those of the inputs."""
        own = {f"{i}{axis}": name for i, pair in enumerate(inputs) for axis, name in zip("rc", pair[-2:], strict=True)}
        return tuple(own.get(axis, axis) for axis in self.output_axes)

    def gradients(self, at: Application) -> "tuple[Route | None, ...]":
        """Return the route of each input's gradient by the chain rule; None = no gradient, as for a target."""
        if self.is_fixed:
            return tuple(None for _ in at.inputs)
        message = f"There is no gradient through {at.output}."
        raise InvalidInput(message, hint="Choose a loss that does not depend on this step.")

    def bounds(self, *inputs: Interval) -> Interval:
        """Return the bounds of the output for bounds of the inputs: `forward` on intervals, unless it is too wide."""
        output: Interval = self.forward(intervals, *inputs)
        return output

    def terms(self, row: int, column: int, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the two factors of every product that the cell is the sum of, or None if it is not such a sum."""
        return None


class Route(Record):
    """One way to compute a node: a step applied to other nodes."""

    step: Step
    inputs: tuple[str, ...]


class GraphNode(Record):
    """Named node: its caption and the routes that compute it (none = given), the usual one first.

    `listed` is False for nodes that are shown only if they were written, such as the powers of e inside softmax;
    `symbol` is the node's TeX in formulas of other nodes.
    """

    name: str
    caption: FormulaStep
    routes: tuple[Route, ...] = ()
    head: int = 0
    listed: bool = True
    symbol: str = ""

    @property
    def base(self) -> str:
        """Last part of the name: `weights` of `head-1.weights`."""
        return self.name.rpartition(".")[2]

    def route_from(self, known: Collection[str]) -> Route | None:
        """Return the first route whose inputs are known nodes."""
        return next((route for route in self.routes if all(parent in known for parent in route.inputs)), None)


class Graph:
    """Nodes in order of dependence."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        self.nodes = {node.name: node for node in nodes}

    def evaluate(self, given: Mapping[str, Array], xp: Namespace = np) -> dict[str, Array]:
        """Return the values of every node that follows from the given ones, in order.

        `xp` decides the number type: NumPy arrays, or `peasy.worked.intervals` for intervals.
        """
        values: dict[str, Array] = {}
        for name, node in self.nodes.items():
            if name in given:
                values[name] = given[name]
            elif route := node.route_from(values):
                inputs = [values[parent] for parent in route.inputs]
                values[name] = route.step.bounds(*inputs) if xp is intervals else route.step.forward(xp, *inputs)
        return values

    def route(self, name: str, values: Mapping[str, Array]) -> Route | None:
        """Return the route that computes a node from those that have values; None if it is given or constant."""
        route = self.nodes[name].route_from(values)
        return route if route is not None and route.inputs else None

    def lines(
        self, name: str, row: int, column: int, values: Mapping[str, np.ndarray], labels: Mapping[str, Sequence[str]],
        decimals: int,
    ) -> Iterator[ArithmeticLine]:  # fmt: skip
        """Yield the arithmetic of one cell; `values` are those of all nodes, `labels` those of the axes by name.

        A node without inputs is given.
        """
        value = float(values[name][row, column])
        route = self.nodes[name].route_from(values)
        if route is None:
            yield ArithmeticLine("given", (), value, decimals)
            return

        def lines_of(index: int, row: int, column: int) -> Iterator[ArithmeticLine]:
            return self.lines(route.inputs[index], row, column, values, labels, decimals)

        inputs = tuple(values[parent] for parent in route.inputs)
        keys = tuple(labels.get(self.nodes[name].caption.axes[-1], map(str, range(values[name].shape[1]))))
        yield from route.step.lines(CellContext(row, column, value, inputs, keys, decimals, lines_of))


def format_sum(parts: Sequence[_T] | np.ndarray, format_term: Callable[[_T], str] = str) -> str:
    """Format a sum; the middle of a long one is left out.

    >>> format_sum([1, 2, 3]), format_sum(range(100))
    ('1 + 2 + 3', '0 + 1 + 2 + … + 99')
    """
    if len(parts) <= 6:
        return " + ".join(map(format_term, parts))
    return " + ".join([*map(format_term, parts[:3]), "…", format_term(parts[-1])])


def format_terms(terms: Sequence[str], values: np.ndarray, decimals: int) -> str:
    """Format a sum of expressions with these values; of a long one, the first terms and the sum of the others."""
    if len(terms) <= MAX_TERMS:
        return " + ".join(terms)
    rest = format_operand(float(values[MAX_TERMS:].sum()), decimals)
    return " + ".join([*terms[:MAX_TERMS], f"{rest} (the other {len(terms) - MAX_TERMS})"])


def format_product(pair: tuple[float, float]) -> str:
    """Format a product of two numbers."""
    return f"{format_operand(pair[0])}·{format_operand(pair[1])}"
