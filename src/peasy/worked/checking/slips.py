"""Slips: mistakes with a name, found by calculating a table or a cell the wrong way and comparing.

A slip of a table explains every cell of its wrong rows: scores that were not scaled, softmax over columns, a mask
turned round, W transposed. A slip of a cell explains one number: a product left out, a sign, digits swapped, a
neighbour copied. Each comes with the arithmetic that gives the written number.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from peasy.formula.attention import apply_mask
from peasy.formula.masks import position_distances
from peasy.formula.normalise import NORMALISATIONS
from peasy.worked.attention_graph import FormulaSettings
from peasy.worked.checking.cell import CellMark, WrittenNumber
from peasy.worked.checking.readings import TableReading
from peasy.worked.checking.step_slips import step_slips
from peasy.worked.checking.table import AlignedTable
from peasy.worked.graph import Graph
from peasy.worked.label import format_number, format_operand
from peasy.worked.operations import Project
from peasy.worked.steps import Normalise

_Show = Callable[[int, int], str]
_MAX_COMBINED = 400
"""Maximum number of combinations of two slips that are tried."""

_MAX_ANCESTORS = 24
"""Maximum number of steps before a wrong table in which a slip is looked for."""

_SOFTMAX = Normalise(NORMALISATIONS["softmax"])
_PRODUCT = Project("", ("", ""))


@dataclass(frozen=True)
class Slip:
    """Named mistake: its description, the table it gives, and the arithmetic of one cell ("" if there is none)."""

    description: str
    values: np.ndarray
    show: _Show | None = None

    def reason(self, row: int, column: int) -> str:
        """Return the description with the arithmetic of a cell: `the scores were not scaled: e^1 / (...) = 0.42`."""
        arithmetic = self.show(row, column) if self.show else ""
        value = format_number(float(self.values[row, column]))
        return (
            f"{self.description}: {arithmetic} = {value}" if arithmetic else f"{self.description}, which gives {value}"
        )


class SlipFinder:
    """Finds the slip behind the wrong rows of a table. `tables` are the right numbers of the tables before it.

    Slips of attention come from `settings`. With `graph`, each step of it that the table depends on and that is not
    `written` is also calculated in the wrong ways that are known for it, and the steps after it from that.
    """

    def __init__(
        self, settings: FormulaSettings, tables: Mapping[str, np.ndarray], graph: Graph | None = None,
        written: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.settings, self.tables, self.graph, self.written = settings, tables, graph, written

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
        """Yield all slips of a table, the most common first."""
        by_step: dict[str, Callable[[], Iterator[Slip]]] = {
            "scaled": self._scale_slips, "masked": self._masked_slips, "weights": self._weights_slips,
            "powers": self._power_slips, "scores": self._score_slips, "context": self._context_slips,
            **dict.fromkeys(("query", "key", "value"), lambda: self._projection_slips(table.step)),
            "output": lambda: self._projection_slips("output"), "concat": self._concat_slips,
        }  # fmt: skip
        yield from by_step.get(table.step, lambda: iter(()))()
        if self.graph is not None:
            yield from self._graph_slips(self.graph, table.node)
        yield from _whole_table_slips(table, right)

    def _graph_slips(self, graph: Graph, node: str) -> Iterator[Slip]:
        """Yield the tables that follow if one step before, or the step itself, is calculated in a wrong way."""
        for name in _unwritten_before(graph, node, self.written, self.tables):
            route = graph.route(name, self.tables)
            if route is None:
                continue
            later = _between(graph, name, node)
            for text, values in step_slips(route.step, [self.tables[i] for i in route.inputs], route.inputs):
                known = {**self.tables, name: values}
                for following in later:
                    next_route = graph.route(following, known)
                    assert next_route is not None
                    known[following] = next_route.step.forward(np, *(known[parent] for parent in next_route.inputs))
                yield Slip(text if name == node else f"in {name}, {text}", known[node])

    def _table(self, name: str) -> np.ndarray | None:
        """Return the right numbers of an earlier table, or None."""
        return self.tables.get(name)

    def _scale_slips(self) -> Iterator[Slip]:
        scores, key, x = self._table("scores"), self._table("key"), self._table("x")
        if scores is None or self.settings.scale is not None:
            return
        if self.settings.scoring.name != "scaled-dot":
            if self.settings.scoring.name == "dot" and key is not None:
                yield Slip(
                    "the scores were divided by √d_k, but they are not scaled here", scores / key.shape[-1] ** 0.5
                )
            return

        def divided(text: str, divisor: float, sign: str) -> Slip:
            return Slip(text, scores / divisor, lambda i, j: f"{format_number(scores[i, j])} / {sign}")

        yield Slip("the scores were not scaled", scores, lambda i, j: f"{format_number(scores[i, j])} / 1")
        widths = {"d_k": key, "d_model": x, "the number of tokens": scores}
        sizes = {name: table.shape[-1] for name, table in widths.items() if table is not None}
        own = sizes.get("d_k", 0)
        for name, size in sizes.items():
            root = size**0.5
            yield divided(f"the scores were divided by {name} instead of √d_k", float(size), str(size))
            if size != own:
                yield divided(f"the scores were divided by √ of {name} instead of √d_k", root, f"√{size}")
        if own:
            root = own**0.5
            times = f"· √{own}"
            text = "the scores were multiplied by √d_k instead of divided"
            yield Slip(text, scores * root, lambda i, j: f"{format_number(scores[i, j])} {times}")
            for decimals in (1, 2):
                short = round(root, decimals)
                if abs(short - root) > 1e-9:
                    yield divided(f"√{own} was rounded too early, to {short:g}", short, f"{short:g}")
            whole = "the quotient was cut to a whole number"
            yield Slip(whole, np.floor(scores / root), lambda i, j: f"{format_number(scores[i, j])} // √{own}")

    def _mask_slips(self, scaled: np.ndarray) -> Iterator[Slip]:
        """Yield scaled scores with a wrong mask."""
        mask, size = self.settings.attention_mask, scaled.shape
        distance = position_distances(np, *size)
        if mask is None:
            yield Slip(
                "a causal mask was applied, but nothing is masked here", np.where(distance >= 0, scaled, -np.inf)
            )
            return
        yield Slip("the mask was not applied", scaled)
        yield Slip("the mask was inverted", np.where(~mask, scaled, -np.inf))
        yield Slip("the mask was transposed", np.where(mask.T, scaled, -np.inf) if size[0] == size[1] else scaled)
        yield Slip("the mask was one position too strict", np.where(distance > 0, scaled, -np.inf))
        yield Slip("the mask was one position too wide", np.where(distance >= -1, scaled, -np.inf))
        yield Slip("masked scores were set to 0 instead of -∞", np.where(mask, scaled, 0.0))
        aligned = np.arange(size[0])[:, None] >= np.arange(size[1])[None, :]
        yield Slip("the mask was aligned with the first key instead of the last", np.where(aligned, scaled, -np.inf))

    def _masked_slips(self) -> Iterator[Slip]:
        scaled, mask = self._table("scaled"), self.settings.attention_mask
        if scaled is None:
            return
        yield from self._mask_slips(scaled)
        for slip in self._scale_slips():
            yield Slip(slip.description, apply_mask(np, slip.values, mask, self.settings.bias), slip.show)

    def _power_slips(self) -> Iterator[Slip]:
        masked = self._table("masked")
        if masked is None:
            return
        for base in (2, 10):
            text = f"{base} was raised to the power instead of e"
            yield Slip(text, float(base) ** masked, _show_power(masked, str(base)))
        yield Slip("e^x was forgotten", masked)
        for slip in self._masked_slips():
            yield Slip(slip.description, np.exp(slip.values), _show_power(slip.values, "e"))

    def _weights_slips(self) -> Iterator[Slip]:
        masked, scaled = self._table("masked"), self._table("scaled")
        if masked is None or scaled is None or self.settings.normalise.name != "softmax":
            return
        mask, bias = self.settings.attention_mask, self.settings.bias
        inputs = [*self._mask_slips(scaled)]
        for slip in self._scale_slips():
            inputs.append(Slip(slip.description, apply_mask(np, slip.values, mask, bias)))
        for slip in inputs:
            # a row without any key gets equal weights, if it was masked with large negative numbers
            values = np.where(np.isneginf(slip.values).all(axis=-1, keepdims=True), 0.0, slip.values)
            yield Slip(slip.description, _SOFTMAX.forward(np, values), _show_softmax(values))
        yield from _normalisation_slips(masked)
        if mask is not None:
            text = "the mask was applied after the softmax, and the rows were not divided by their new sums"
            yield Slip(text, np.where(mask, _SOFTMAX.forward(np, scaled), 0.0))
        count = 0
        for slip in inputs:
            for other in _normalisation_slips(slip.values):
                count += 1
                if count > _MAX_COMBINED:
                    return
                yield Slip(f"{slip.description}, and {other.description}", other.values, other.show)

    def _score_slips(self) -> Iterator[Slip]:
        query, key, value, x = (self._table(name) for name in ("query", "key", "value", "x"))
        if query is None or key is None or self.settings.scoring.name not in ("dot", "scaled-dot"):
            return
        pairs = [
            ("K·Qᵀ was calculated instead of Q·Kᵀ", key, query),
            ("Q·Qᵀ was calculated, with queries as keys", query, query),
            ("K·Kᵀ was calculated, with keys as queries", key, key),
        ]
        if value is not None:
            pairs.append(("Q·Vᵀ was calculated, with values as keys", query, value))
        if x is not None:
            pairs.append(("X·Xᵀ was calculated, without queries and keys", x, x))
        for text, left, right in pairs:
            if left.shape[-1] == right.shape[-1]:
                yield _product(text, left, right.T)
        if query.shape[-1] == key.shape[0]:
            yield _product("Q·K was calculated, without transposing K", query, key)
        scaled = self._table("scaled")
        if scaled is not None:
            yield Slip("the scores are scaled already", scaled)

    def _context_slips(self) -> Iterator[Slip]:
        weights, value = self._table("weights"), self._table("value")
        if weights is None or value is None:
            return
        for name, text in (("key", "keys"), ("query", "queries"), ("x", "inputs")):
            other = self._table(name)
            if other is not None and len(other) == weights.shape[-1]:
                yield _product(f"the weights were multiplied by the {text} instead of the values", weights, other)
        if weights.shape[0] == weights.shape[1]:
            yield _product("the columns of the weights were used instead of the rows", weights.T, value)
        for name in ("scores", "scaled", "masked"):
            scores = self._table(name)
            if scores is not None and np.isfinite(scores).all():
                yield _product(f"the {name} were multiplied by the values, without softmax", scores, value)
        yield Slip(
            "the values were averaged, without weights",
            np.broadcast_to(value.mean(axis=0), (len(weights), value.shape[1])),
        )
        yield Slip(
            "the values were summed, without weights",
            np.broadcast_to(value.sum(axis=0), (len(weights), value.shape[1])),
        )
        for slip in self._weights_slips():
            if np.isfinite(slip.values).all():
                yield _product(slip.description, slip.values, value)

    def _projection_slips(self, name: str) -> Iterator[Slip]:
        """Yield wrong projections of queries, keys, values or the output."""
        letter = "o" if name == "output" else name[0]
        inputs = self._table("concat") if letter == "o" else self._table("x" if letter == "q" else "source")
        inputs = self._table("context" if letter == "o" else "x") if inputs is None else inputs
        weights, bias = self._table(f"w_{letter}"), self._table(f"b_{letter}")
        if inputs is None or weights is None:
            return
        other_letters = [other for other in "qkv" if other != letter] if letter != "o" else []
        others = {f"W_{other.upper()}": self._table(f"w_{other}") for other in other_letters}
        matrices = {f"W_{letter.upper()} was transposed": weights.T}
        matrices |= {f"{name} used {title}": matrix for title, matrix in others.items() if matrix is not None}
        for title, matrix in matrices.items():
            if matrix.shape[0] == inputs.shape[1]:
                slip = _product(title, inputs, matrix)
                yield Slip(slip.description, slip.values if bias is None else slip.values + bias, slip.show)
        if bias is not None:
            yield _product("the bias was not added", inputs, weights)
        x = self._table("x")
        if letter in "kv" and x is not None and x.shape[1] == weights.shape[0] and x is not inputs:
            yield _product("the inputs of the queries were used instead of the source", x, weights)

    def _concat_slips(self) -> Iterator[Slip]:
        heads = [table for name, table in self.tables.items() if name.endswith(".context")]
        for order in permutations(range(len(heads))) if 2 <= len(heads) <= 4 else ():
            text = "the heads stand in another order: " + ", ".join(str(head + 1) for head in order)
            yield Slip(text, np.concat([heads[head] for head in order], axis=-1))
        if heads:
            interleaved = np.stack(heads, axis=-1).reshape(len(heads[0]), -1)
            yield Slip("the columns of the heads were interleaved", interleaved)


def _unwritten_before(graph: Graph, node: str, written: Collection[str], known: Collection[str]) -> Iterator[str]:
    """Yield a node and those that it is calculated from, the nearest first, up to what is written."""
    pending, seen = deque([node]), {node}
    while pending and len(seen) <= _MAX_ANCESTORS:
        name = pending.popleft()
        yield name
        route = graph.route(name, dict.fromkeys(known, np.empty(0)))
        for parent in () if route is None else route.inputs:
            if parent not in seen and parent not in written:
                seen.add(parent)
                pending.append(parent)


def _between(graph: Graph, first: str, last: str) -> list[str]:
    """Return the nodes after `first` that depend on it, in order, up to `last`."""
    changed, order = {first}, list(graph.nodes)
    for name in order[order.index(first) + 1 : order.index(last) + 1]:
        if any(parent in changed for route in graph.nodes[name].routes[:1] for parent in route.inputs):
            changed.add(name)
    return [name for name in order if name in changed and name != first]


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


def _product(text: str, left: np.ndarray, right: np.ndarray) -> Slip:
    return Slip(text, left @ right, lambda i, j: _PRODUCT.summary(i, j, [left, right]))


def _show_power(exponents: np.ndarray, base: str) -> _Show:
    return lambda i, j: f"{base}^{format_operand(float(exponents[i, j]))}"


def _show_softmax(scores: np.ndarray) -> _Show:
    return lambda i, j: _SOFTMAX.summary(i, j, [scores])


def _normalisation_slips(masked: np.ndarray) -> Iterator[Slip]:
    """Yield weights that were made from masked scores in a wrong way."""
    hidden = masked == -np.inf
    unmasked, weights = np.where(hidden, 0.0, masked), _SOFTMAX.forward(np, masked)
    powers = np.where(hidden, 0.0, np.exp(masked))
    sums = powers.sum(axis=-1, keepdims=True)

    def quotient(above: np.ndarray, below: np.ndarray, sign: str = "") -> _Show:
        wide = np.broadcast_to(below, above.shape)
        return lambda i, j: f"{sign}{format_number(above[i, j])} / {format_number(wide[i, j])}"

    columns = _SOFTMAX.forward(np, masked.T).T
    yield Slip(
        "softmax was taken over columns instead of rows", columns, lambda i, j: _SOFTMAX.summary(j, i, [masked.T])
    )
    total = unmasked.sum(axis=-1, keepdims=True)
    yield Slip("the scores were divided by their sum, without e^x", unmasked / total, quotient(unmasked, total))
    for base in (2, 10):
        raised = np.where(hidden, 0.0, float(base) ** masked)
        below = raised.sum(axis=-1, keepdims=True)
        yield Slip(f"{base}^x was used instead of e^x", raised / below, quotient(raised, below))
    yield Slip("softmax was taken over the whole table", powers / powers.sum(), quotient(powers, powers.sum()))
    yield Slip("e^x was not divided by the sum of the row", powers, _show_power(masked, "e"))
    yield Slip(
        "softmax was applied twice", np.where(hidden, 0.0, _SOFTMAX.forward(np, weights)), _show_softmax(weights)
    )
    yield Slip("softmax was not applied", unmasked)
    negated = np.where(hidden, -np.inf, -masked)
    yield Slip("softmax was taken of the negative scores", _SOFTMAX.forward(np, negated), _show_softmax(negated))
    largest = np.max(powers, axis=-1, keepdims=True)
    yield Slip("e^x was divided by the largest power instead of the sum", powers / largest, quotient(powers, largest))
    yield Slip("all weight was put on the largest score", (masked == np.max(masked, axis=-1, keepdims=True)) * 1.0)
    yield Slip("the sigmoid was used instead of softmax", powers / (1 + powers), quotient(powers, 1 + powers))
    for decimals in (1, 2):
        early = np.round(powers, decimals)
        text = f"e^x was rounded too early, to {decimals} {'decimal' if decimals == 1 else 'decimals'}"
        if not np.allclose(early, powers, atol=1e-9, rtol=0) and np.isfinite(sums).all():
            below = early.sum(axis=-1, keepdims=True)
            yield Slip(text, early / below, quotient(early, below))
    count = np.full_like(sums, powers.shape[-1])
    yield Slip("e^x was divided by the number of keys instead of the sum", powers / count, quotient(powers, count))


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
    rows, columns = range(len(right))[:8], range(right.shape[1])[:6]
    for first, second in combinations(rows, 2):
        order = [{first: second, second: first}.get(row, row) for row in range(len(right))]
        yield Slip(f"the rows of {table.rows[first]} and {table.rows[second]} are swapped", right[order])
    for first, second in combinations(columns, 2):
        order = [{first: second, second: first}.get(column, column) for column in range(right.shape[1])]
        yield Slip(f"columns {table.columns[first]} and {table.columns[second]} are swapped", right[:, order])
    for source, target in permutations(rows, 2):
        order = [source if row == target else row for row in range(len(right))]
        yield Slip(f"the row of {table.rows[target]} is a copy of the row of {table.rows[source]}", right[order])


def explain_cell(number: WrittenNumber, text: str, reading: TableReading, row: int, column: int) -> str:
    """Return the name and arithmetic of the slip behind one wrong number, or ""."""
    expected = float(reading.point[row, column])
    if not np.isfinite(expected):
        return ""
    is_written = number.is_rounding_of
    if expected != 0 and is_written(-expected):
        return "the sign is wrong"
    product = _explain_product(reading, row, column, expected, is_written)
    if product:
        return product
    for factor, what in ((10.0, "right"), (0.1, "left"), (100.0, "right, twice"), (0.01, "left, twice")):
        if abs(expected) > 1e-9 and is_written(expected * factor):
            return f"the decimal point is one place too far {what}"
    for label, cells in (("row", reading.point[row]), ("column", reading.point[:, column])):
        matches = [index for index, value in enumerate(cells) if is_written(float(value))]
        own = column if label == "row" else row
        if matches and abs(cells[matches[0]] - expected) > 1e-9:
            nearest = min(matches, key=lambda index: abs(index - own))
            other = "column" if label == "row" else "row"
            return f"it is the number of {other} {nearest + 1}"
    return _explain_digits(text, expected, number)


def _explain_product(
    reading: TableReading, row: int, column: int, expected: float, is_written: Callable[[float], bool]
) -> str:
    """Return which product of a sum is wrong: left out, added with the wrong sign, counted twice, or a sum instead."""
    factors = reading.terms(row, column)
    if factors is None or len(factors[0]) > 32:
        return ""
    for a, b in zip(*factors, strict=True):
        a, b = float(a), float(b)
        term, shown = a * b, f"{format_operand(a)}·{format_operand(b)}"
        if not np.isfinite(term):
            continue
        wrong_ways = (
            (-term, f"the product {shown} was left out"), (-2 * term, f"the product {shown} has the wrong sign"),
            (term, f"the product {shown} was added twice"),
            (a + b - term, f"{format_operand(a)} + {format_operand(b)} was calculated instead of {shown}"),
        )  # fmt: skip
        for change, name in wrong_ways:
            if abs(change) > 1e-9 and is_written(expected + change):
                sign, result = "+" if change >= 0 else "-", format_number(expected + change)
                return f"{name}: {format_number(expected)} {sign} {format_number(abs(change))} = {result}"
    return ""


def _explain_digits(text: str, expected: float, number: WrittenNumber) -> str:
    """Return that two digits are swapped, or one is wrong."""
    if number.decimals is None or "%" in text:
        return ""
    right = f"{expected:.{max(number.decimals, 0)}f}"
    written = f"{number.value:.{max(number.decimals, 0)}f}"
    if len(right) != len(written) or right == written:
        return ""
    different = [index for index, (a, b) in enumerate(zip(right, written, strict=True)) if a != b]
    if (
        len(different) == 2
        and right[different[0]] == written[different[1]]
        and right[different[1]] == written[different[0]]
    ):
        return f"two digits are swapped: {right}"
    if len(different) == 1 and len(right.strip("-0.")) > 1:
        return f"one digit is wrong: {right}"
    return ""
