"""Arithmetic of one cell, line by line: products and sums, roots and quotients, powers of e.

Only displayed numbers are rounded: each line's value is computed from all digits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from peasy.errors import NotFound, did_you_mean
from peasy.worked.example import AdditiveScoringConfig
from peasy.worked.label import format_number, format_operand, token_label
from peasy.worked.solver import WorkedExample, WorkedStep

MAX_TERMS = 16
"""A longer sum is written with its first terms and one term for the rest."""

_UNSHIFTED_SCORE_RANGE = (-1.0, 30.0)
"""If a row's largest score is outside this range, e^score would be too small or too long to read; the largest
score is then subtracted first, which leaves the softmax unchanged."""


@dataclass(frozen=True)
class ArithmeticLine:
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


@dataclass(frozen=True)
class CellArithmetic:
    """Arithmetic of one cell; the last line gives its value."""

    step: str
    row: int
    column: int
    title: str
    lines: tuple[ArithmeticLine, ...]
    value: float

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines as text."""
        return tuple(line.text for line in self.lines)


def arithmetic(
    worked: WorkedExample, step: str, row: int | str, column: int | str, decimals: int = 4
) -> CellArithmetic:
    """Return the arithmetic behind one cell of a step; `row` and `column` are positions or tokens.

    >>> from peasy.worked import load_example, solve
    >>> for line in arithmetic(solve(load_example("i-love-ai")), "weights", "I", "love").texts:
    ...     print(line)
    I: e^0 = 1
    love: e^0.7071 = 2.0281
    AI: e^0.7071 = 2.0281
    sum: 1 + 2.0281 + 2.0281 = 5.0562
    share: 2.0281 / 5.0562 = 0.4011
    """
    solved = worked.step(step)
    i = find_index(row, solved.rows, f"row of {solved.name}")
    j = find_index(column, solved.columns, f"column of {solved.name}")
    cell = _CellContext(worked, solved, i, j, decimals)
    row_label, column_label = token_label(solved.rows[i]), token_label(solved.columns[j])
    title = f"{solved.name}: {solved.row_axis} {row_label}, {solved.column_axis} {column_label}"
    with np.errstate(all="ignore"):
        lines = tuple(_EXPLAINERS[solved.base](cell))
    return CellArithmetic(solved.name, i, j, title, lines, cell.value)


def find_index(token_or_index: int | str, labels: Sequence[str], kind: str) -> int:
    """Return the index of a label: a number counts from 0 (or from the end), anything else is a token."""
    with suppress(ValueError):
        if len(str(token_or_index)) < 12 and -len(labels) <= int(token_or_index) < len(labels):
            return int(token_or_index) % len(labels)
    if isinstance(token_or_index, str):
        lowered = [label.lower() for label in labels]
        for known, wanted in ((list(labels), token_or_index), (lowered, token_or_index.lower())):
            if wanted in known:
                return known.index(wanted)
    shown = [token_label(label) for label in labels[:20]]
    near = did_you_mean(token_or_index, shown) if isinstance(token_or_index, str) else None
    ellipsis = ", ..." if len(labels) > 20 else ""
    hint = near or f"Positions 0 to {len(labels) - 1}: {', '.join(shown)}{ellipsis}."
    raise NotFound(f"There is no {kind} {token_label(str(token_or_index))!r}.", hint=hint)


@dataclass(frozen=True)
class _CellContext:
    """One cell of a step, with helpers that format its arithmetic."""

    worked: WorkedExample
    step: WorkedStep
    row: int
    column: int
    decimals: int

    @property
    def value(self) -> float:
        return float(self.step.values[self.row, self.column])

    @property
    def masked(self) -> bool:
        table = self.worked.attention_mask
        return table is not None and not table[self.row, self.column]

    def values_of(self, name: str) -> np.ndarray:
        values = self.worked.find_values(name, self.step.head)
        assert values is not None, name
        return values

    def line(self, label: str, *expressions: str, value: float | None = None) -> ArithmeticLine:
        """Return one line of arithmetic; its value is that of the cell unless given."""
        return ArithmeticLine(label, expressions, self.value if value is None else float(value), self.decimals)

    def dot_product(
        self, label: str, left: np.ndarray, right: np.ndarray, value: float | None = None
    ) -> Iterator[ArithmeticLine]:
        """Yield the dot product of two vectors: products, then their sum."""
        pairs = zip(left[:MAX_TERMS], right[:MAX_TERMS], strict=True)
        factors = [f"{self.format_operand(a)}·{self.format_operand(b)}" for a, b in pairs]
        terms = list(left[:MAX_TERMS] * right[:MAX_TERMS])
        if len(left) > MAX_TERMS:
            rest = float(left[MAX_TERMS:] @ right[MAX_TERMS:])
            yield self.line(f"the other {len(left) - MAX_TERMS} products", value=rest)
            factors, terms = [*factors, self.format_operand(rest)], [*terms, rest]
        yield self.line(label, " + ".join(factors), self.format_sum(terms), value=value)

    def product_of(self, label: str, left: str, right: str) -> Iterator[ArithmeticLine]:
        """Return the cell as the product of a row and a column of earlier steps."""
        return self.dot_product(label, self.values_of(left)[self.row], self.values_of(right)[:, self.column])

    def format_sum(self, terms: Sequence[float]) -> str:
        return " + ".join(map(self.format_operand, terms))

    def format(self, number: float) -> str:
        return format_number(number, self.decimals)

    def format_operand(self, number: float) -> str:
        return format_operand(number, self.decimals)


_Lines = Iterator[ArithmeticLine]


def _explain_projection(cell: _CellContext) -> _Lines:
    """Query, key or value: the inputs times a weight matrix, or the inputs unchanged."""
    worked, name = cell.worked, cell.step.base
    weights = worked.find_values(f"w_{name[0]}")
    if getattr(worked.example, name[0]) is not None or worked.example.weights is not None:
        yield cell.line("given")
    elif weights is None:
        yield cell.line("input, unchanged")
    else:
        source = worked.find_values("source") if name != "query" else None
        inputs = cell.values_of("x") if source is None else source
        yield from cell.dot_product(name, inputs[cell.row], weights[:, int(cell.step.columns[cell.column])])


def _explain_scores(cell: _CellContext) -> _Lines:
    query, key = cell.values_of("query")[cell.row], cell.values_of("key")[cell.column]
    scoring = cell.worked.example.scoring
    if isinstance(scoring, AdditiveScoringConfig):
        yield from _explain_additive(cell, scoring, query, key)
    elif scoring == "cosine":
        yield from _explain_cosine(cell, query, key)
    else:
        yield from cell.dot_product("query · key", query, key)


def _explain_cosine(cell: _CellContext, query: np.ndarray, key: np.ndarray) -> _Lines:
    dot = float(query @ key)
    yield from cell.dot_product("query · key", query, key, dot)
    lengths = []
    for name, vector in (("query", query), ("key", key)):
        squares = " + ".join(f"{cell.format_operand(component)}^2" for component in vector[:MAX_TERMS])
        rest = float((vector[MAX_TERMS:] ** 2).sum())
        squares += f" + {cell.format(rest)}" if len(vector) > MAX_TERMS else ""
        lengths.append(math.sqrt(float(vector @ vector)))
        yield cell.line(f"length of {name}", f"√({squares})", value=lengths[-1])
    if 0 in lengths:
        yield cell.line("the cosine of a zero vector is 0", value=0.0)
    else:
        yield cell.line("cosine", f"{cell.format_operand(dot)} / ({'·'.join(map(cell.format, lengths))})")


def _explain_additive(cell: _CellContext, scoring: AdditiveScoringConfig, query: np.ndarray, key: np.ndarray) -> _Lines:
    w, u = np.asarray(scoring.w), np.asarray(scoring.u)
    projected_query, projected_key = query @ w, key @ u
    activated = np.tanh(projected_query + projected_key)
    for index, (left, right, activation) in enumerate(zip(projected_query, projected_key, activated, strict=True)):
        yield from cell.dot_product(f"query · w, {index}", query, w[:, index], left)
        yield from cell.dot_product(f"key · u, {index}", key, u[:, index], right)
        yield cell.line(f"tanh, {index}", f"tanh({cell.format(left)} + {cell.format_operand(right)})", value=activation)
    yield from cell.dot_product("score", np.asarray(scoring.v, float), activated)


def _explain_scaled(cell: _CellContext) -> _Lines:
    example, score = cell.worked.example, cell.format_operand(float(cell.values_of("scores")[cell.row, cell.column]))
    if example.scale is not None:
        yield cell.line("scaled", f"{score}·{cell.format_operand(example.scale)}")
    elif example.scoring == "scaled-dot":
        width = cell.values_of("key").shape[-1]
        yield cell.line("square root of d_k", f"√{width}", value=math.sqrt(width))
        yield cell.line("scaled", f"{score} / {cell.format(math.sqrt(width))}")
    else:
        yield cell.line("score, unchanged")


def _explain_masked(cell: _CellContext) -> _Lines:
    bias = cell.worked.example.bias
    if cell.masked:
        yield cell.line("masked for this query")
    elif bias is None:
        yield cell.line("not masked, unchanged")
    else:
        terms = float(cell.values_of("scaled")[cell.row, cell.column]), float(bias[cell.row][cell.column])
        yield cell.line("with M", cell.format_sum(terms))


def _explain_weights(cell: _CellContext) -> _Lines:
    example = cell.worked.example
    masked_scores = cell.worked.find_values("masked", cell.step.head)
    if example.weights is not None:
        yield cell.line("given")
    elif cell.masked:
        yield cell.line("masked for this query")
    elif example.normalise == "none":
        yield cell.line("score, unchanged")
    else:
        scores = (cell.values_of("scaled") if masked_scores is None else masked_scores)[cell.row]
        yield from (_explain_softmax if example.normalise == "softmax" else _explain_division)(cell, scores)


def _explain_softmax(cell: _CellContext, scores: np.ndarray) -> _Lines:
    """Softmax: e^score of every unmasked key in the row, their sum, and the quotient."""
    visible_keys = [index for index, score in enumerate(scores) if score != -math.inf]
    largest = float(max(scores[index] for index in visible_keys))
    shift = 0.0 if _UNSHIFTED_SCORE_RANGE[0] <= largest <= _UNSHIFTED_SCORE_RANGE[1] else largest
    if shift:
        yield cell.line("the largest score is subtracted, the softmax stays the same", value=largest)
    powers = {index: math.exp(scores[index] - shift) for index in visible_keys}
    listed = [index for index in visible_keys if index == cell.column or index in visible_keys[: MAX_TERMS - 1]]
    for index in listed:
        shifted = f"({cell.format(scores[index])} - {cell.format_operand(shift)})"
        exponent = shifted if shift else cell.format_operand(scores[index])
        yield cell.line(token_label(cell.worked.keys[index]), f"e^{exponent}", value=powers[index])
    terms = [powers[index] for index in listed]
    if len(listed) < len(visible_keys):
        terms.append(sum(powers[index] for index in visible_keys if index not in set(listed)))
        yield cell.line(f"the other {len(visible_keys) - len(listed)} powers", value=terms[-1])
    total = sum(powers.values())
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line("share", f"{cell.format(powers[cell.column])} / {cell.format(total)}")


def _explain_division(cell: _CellContext, scores: np.ndarray) -> _Lines:
    """Division by the sum of the row."""
    visible = [float(score) for score in scores if score != -math.inf]
    terms, rest = visible[:MAX_TERMS], visible[MAX_TERMS:]
    if rest:
        terms.append(math.fsum(rest))
        yield cell.line(f"the other {len(rest)} scores", value=terms[-1])
    total = math.fsum(visible)
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line("share", f"{cell.format_operand(float(scores[cell.column]))} / {cell.format_operand(total)}")


def _explain_concat(cell: _CellContext) -> _Lines:
    width = len(cell.step.columns) // len(cell.worked.heads)
    yield cell.line(f"from head {cell.column // width + 1}, column {cell.column % width}")


def _explain_output(cell: _CellContext) -> _Lines:
    name = "context" if cell.worked.find_values("concat") is None else "concat"
    return cell.product_of(f"{name} · W_O", name, "w_o")


_EXPLAINERS: dict[str, Callable[[_CellContext], _Lines]] = {
    **dict.fromkeys(("x", "source", "w_q", "w_k", "w_v", "w_o"), lambda cell: iter([cell.line("given")])),
    **dict.fromkeys(("query", "key", "value"), _explain_projection),
    "scores": _explain_scores,
    "scaled": _explain_scaled,
    "masked": _explain_masked,
    "weights": _explain_weights,
    "context": lambda cell: cell.product_of("weights · values", "weights", "value"),
    "concat": _explain_concat,
    "output": _explain_output,
}
