"""Slips: mistakes with a name, found by calculating a table or a cell the wrong way and comparing.

A slip of a table is a wrong way to calculate one step of the graph: the table itself or one that it follows from. It
explains every cell of the wrong rows. A slip of a cell explains one number: a product left out, a sign, digits
swapped, a neighbour copied. Each comes with the arithmetic that gives the written number.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations, permutations

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.checking.cell import CellMark, WrittenNumber
from peasy.worked.checking.readings import TableReading
from peasy.worked.checking.step_slips import Slip, StepPlace, normalisation_slips, recomputed
from peasy.worked.checking.table import AlignedTable
from peasy.worked.graph import Graph
from peasy.worked.label import format_number, format_operand
from peasy.worked.steps import Mask, Normalise, Scale, Score

_MAX_COMBINED = 400
"""Maximum number of combinations of two slips that are tried."""

_MAX_ANCESTORS = 24
"""Maximum number of steps before a wrong table in which a slip is looked for."""

_MAX_TERMS = 32
"""Maximum number of products of a sum in which a slip is looked for."""

_ATTENTION = (Score, Scale, Mask, Normalise)
"""Steps whose slips say by themselves where they happened."""

_LEFT_OUT = (Scale, Mask, Normalise)
"""Steps that are left out although they were written: the table before them is used."""


class SlipFinder:
    """Finds the slip behind the wrong rows of a table. `tables` are the right numbers of the tables before it.

    Each step of the graph that the table depends on, up to those that were `written`, is calculated in the wrong ways
    that are known for it, and the steps after it from that.
    """

    def __init__(self, graph: Graph, tables: Mapping[str, np.ndarray], written: Collection[str]) -> None:
        self.graph, self.tables, self.written = graph, tables, written

    def find(self, table: AlignedTable, wrong_rows: set[int], right: TableReading, strict: bool = False) -> Slip | None:
        """Return the slip that explains all cells of the table, else all cells of its wrong rows, or None.

        A slip may differ by what rounded inputs allow. If it is `strict`, it may not, and must explain all cells:
        almost anything explains one number.
        """
        cells = [(cell, content) for cell, content in table.cells.items() if content is not CellMark.BLANK]
        in_wrong_rows = [item for item in cells if item[0][0] in wrong_rows]
        if not in_wrong_rows:
            return None
        spare = np.where(right.bounds.is_known & (not strict), right.bounds.width / 2, 0.0)
        found: Slip | None = None
        with np.errstate(all="ignore"):
            for slip in self.candidates(table, right.point):
                if slip.values.shape != right.point.shape or not _explains(slip, in_wrong_rows, spare):
                    continue
                if _explains(slip, cells, spare):
                    return slip
                found = found or slip
        return None if strict else found

    def candidates(self, table: AlignedTable, right: np.ndarray) -> Iterator[Slip]:
        """Yield all slips of a table, those of the nearest step first."""
        changed = list[tuple[str, Slip]]()
        for name in self._before(table.node):
            if (route := self.graph.route(name, self.tables)) is None:
                continue
            inputs = tuple(self.tables[parent] for parent in route.inputs)
            for slip in StepPlace(name, route.step, inputs, route.inputs, self.tables).slips():
                with suppress(InvalidInput, ValueError):  # the steps after it cannot be calculated from that
                    yield self._carried(slip, name, table.node)
                if isinstance(route.step, Scale | Mask):
                    changed.append((name, slip))
        yield from self._combined(changed, table.node)
        if route := self.graph.route(table.node, self.tables):
            right = np.asarray(route.step.forward(np, *(self.tables[parent] for parent in route.inputs)), float)
        yield from _whole_table_slips(table, right)

    def _before(self, node: str) -> Iterator[str]:
        """Yield a node and those that it is calculated from, the nearest first, up to what is written."""
        pending, seen = deque([node]), {node}
        while pending and len(seen) <= _MAX_ANCESTORS:
            name = pending.popleft()
            yield name
            route = self.graph.route(name, self.tables)
            for parent in () if route is None else route.inputs:
                is_left_out = any(isinstance(each.step, _LEFT_OUT) for each in self.graph.nodes[parent].routes)
                if parent not in seen and (parent not in self.written or is_left_out):
                    seen.add(parent)
                    pending.append(parent)

    def _between(self, first: str, last: str) -> list[str]:
        """Return the nodes after `first` that depend on it, in order, up to `last`."""
        changed, order = {first}, list(self.graph.nodes)
        for name in order[order.index(first) + 1 : order.index(last) + 1]:
            route = self.graph.route(name, self.tables)
            if route is not None and changed.intersection(route.inputs):
                changed.add(name)
        return [name for name in order if name in changed and name != first]

    def _carried(self, slip: Slip, name: str, node: str) -> Slip:
        """Return the table of a node that follows from a slip in a step before it."""
        if name == node:
            return slip
        known = {**self.tables, name: slip.values}
        for following in self._between(name, node):
            route = self.graph.route(following, known)
            assert route is not None
            step, inputs = route.step, [known[parent] for parent in route.inputs]
            if isinstance(step, Normalise):  # a row without any key gets equal weights: large negative numbers
                inputs[0] = np.where(np.isneginf(inputs[0]).all(axis=-1, keepdims=True), 0.0, inputs[0])
            carried = recomputed("", step, *inputs)
            known[following] = carried.values
        is_known = isinstance(self.graph.nodes[name].routes[0].step, _ATTENTION)
        show = slip.show if isinstance(step, Mask) else carried.show
        return Slip(slip.description if is_known else f"in {name}, {slip.description}", carried.values, show)

    def _combined(self, changed: Iterable[tuple[str, Slip]], node: str) -> Iterator[Slip]:
        """Yield tables with two slips: a wrong scale or mask, and then a wrong softmax."""
        prefix = node.removesuffix(node.rpartition(".")[2])
        masked, weights = f"{prefix}masked", f"{prefix}weights"
        step = self.graph.nodes[weights].routes[0].step if weights in self._before(node) else None
        if not isinstance(step, Normalise) or step.normalisation.name != "softmax":
            return
        pairs = (
            (slip, other)
            for name, slip in changed
            for other in normalisation_slips(self._carried(slip, name, masked).values)
        )
        for _, (slip, other) in zip(range(_MAX_COMBINED), pairs, strict=False):
            both = Slip(f"{slip.description}, and {other.description}", other.values, other.show)
            yield self._carried(both, weights, node)


def _explains(slip: Slip, cells: Iterable[tuple[tuple[int, int], object]], spare: np.ndarray) -> bool:
    """True if a slip gives every one of the cells."""
    for cell, content in cells:
        value = float(slip.values[cell])
        if content is CellMark.MASKED:
            if value not in (0.0, -np.inf):
                return False
        elif not isinstance(content, WrittenNumber) or not content.may_be(value - spare[cell], value + spare[cell]):
            return False
    return True


def _whole_table_slips(table: AlignedTable, right: np.ndarray) -> Iterator[Slip]:
    """Yield slips that any table may have: transposed, negative, a factor of ten, percent without its sign."""
    if right.shape[0] == right.shape[1]:
        yield Slip("the table is transposed", right.T, lambda i, j: f"row {j + 1}, column {i + 1}")
    yield Slip("the sign is wrong everywhere", -right)
    for factor, text in (
        (100.0, "the numbers are in percent, without the sign"),
        (10.0, "the decimal point is one place too far right"),
        (0.1, "the decimal point is one place too far left"),
    ):
        yield Slip(text, right * factor)
    labels = (("the rows of", table.rows[:8]), ("columns", table.columns[:6]))
    for axis, (what, names) in enumerate(labels):
        for first, second in combinations(range(min(len(names), right.shape[axis])), 2):
            order = np.arange(right.shape[axis])
            order[[first, second]] = second, first
            yield Slip(f"{what} {names[first]} and {names[second]} are swapped", right.take(order, axis))
    for source, target in permutations(range(len(right))[:8], 2):
        copied = right.copy()
        copied[target] = right[source]
        yield Slip(f"the row of {table.rows[target]} is a copy of the row of {table.rows[source]}", copied)


def explain_cell(number: WrittenNumber, text: str, reading: TableReading, row: int, column: int) -> str:
    """Return the name and arithmetic of the slip behind one wrong number, or ""."""
    expected = float(reading.point[row, column])
    if not np.isfinite(expected):
        return ""
    for name, value in _cell_slips(reading, row, column, expected):
        if abs(value - expected) > 1e-9 and number.is_rounding_of(value):
            return name
    return _explain_digits(text, expected, number)


def _cell_slips(reading: TableReading, row: int, column: int, expected: float) -> Iterator[tuple[str, float]]:
    """Yield the slips of one cell with the number that each gives, the most common first."""
    yield "the sign is wrong", -expected
    left, right = reading.terms(row, column) or (np.empty(0), np.empty(0))
    for a, b in zip(left.tolist(), right.tolist(), strict=True) if len(left) <= _MAX_TERMS else ():
        term, shown = a * b, f"{format_operand(a)}·{format_operand(b)}"
        for change, name in (
            (-term, f"the product {shown} was left out"), (-2 * term, f"the product {shown} has the wrong sign"),
            (term, f"the product {shown} was added twice"),
            (a + b - term, f"{format_operand(a)} + {format_operand(b)} was calculated instead of {shown}"),
        ):  # fmt: skip
            sign, result = "+" if change >= 0 else "-", format_number(expected + change)
            yield f"{name}: {format_number(expected)} {sign} {format_number(abs(change))} = {result}", expected + change
    for factor, what in ((10.0, "right"), (0.1, "left"), (100.0, "right, twice"), (0.01, "left, twice")):
        yield f"the decimal point is one place too far {what}", expected * factor
    for other, own, cells in (("column", column, reading.point[row]), ("row", row, reading.point[:, column])):
        for index in np.argsort(np.abs(np.arange(len(cells)) - own), kind="stable"):
            yield f"it is the number of {other} {index + 1}", float(cells[index])


def _explain_digits(text: str, expected: float, number: WrittenNumber) -> str:
    """Return that two digits are swapped, or one is wrong."""
    if number.decimals is None or "%" in text:
        return ""
    right = f"{expected:.{max(number.decimals, 0)}f}"
    written = f"{number.value:.{max(number.decimals, 0)}f}"
    if len(right) != len(written) or right == written:
        return ""
    different = [index for index, (a, b) in enumerate(zip(right, written, strict=True)) if a != b]
    if len(different) == 2 and [right[i] for i in different] == [written[i] for i in reversed(different)]:
        return f"two digits are swapped: {right}"
    if len(different) == 1 and len(right.strip("-0.")) > 1:
        return f"one digit is wrong: {right}"
    return ""
