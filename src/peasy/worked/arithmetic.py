"""Arithmetic of one cell, line by line: products and sums, roots and quotients, powers of e.

Only displayed numbers are rounded: each line's value is computed from all digits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from peasy.errors import NotFound, did_you_mean
from peasy.worked.example import AdditiveScoringConfig
from peasy.worked.label import token_label
from peasy.worked.number import format_number, format_operand
from peasy.worked.solver import WorkedExample, WorkedStep

MAX_TERMS = 16
"""A longer sum is written with its first terms and one term for the rest."""

UNSHIFTED_SCORE_RANGE = (-1.0, 30.0)
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
    solved_step = worked.step(step)
    i, j = (
        find_index(row, solved_step.rows, f"row of {solved_step.name}"),
        find_index(column, solved_step.columns, f"column of {solved_step.name}"),
    )
    value = float(solved_step.values[i, j])
    with np.errstate(all="ignore"):
        lines = tuple(_EXPLAINERS[solved_step.base](_CellContext(worked, solved_step, i, j, decimals)))
    if len(lines) == 1 and not lines[0].expressions:
        lines = (ArithmeticLine(lines[0].label, (), value, decimals),)
    return CellArithmetic(solved_step.name, i, j, cell_title(solved_step, i, j), lines, value)


def find_index(token_or_index: int | str, labels: Sequence[str], kind: str) -> int:
    """Return the index of a label: a number counts from 0 (or from the end), anything else is a token."""
    number = token_or_index if isinstance(token_or_index, int) else _parse_int(token_or_index)
    if number is not None and -len(labels) <= number < len(labels):
        return number % len(labels)
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


def cell_title(step: WorkedStep, row: int, column: int) -> str:
    """Return the title of a cell: step, row label, column label."""
    sides = ((step.row_axis, step.rows[row]), (step.column_axis, step.columns[column]))
    return f"{step.name}: " + ", ".join(f"{axis} {token_label(label)}" for axis, label in sides)


def _parse_int(text: str) -> int | None:
    try:
        return int(text) if len(text) < 12 else None
    except ValueError:
        return None


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

    def line(self, label: str, *ways: str, value: float) -> ArithmeticLine:
        return ArithmeticLine(label, tuple(ways), float(value), self.decimals)

    def dot_product(self, label: str, left: np.ndarray, right: np.ndarray, value: float) -> Iterator[ArithmeticLine]:
        """Yield the dot product of two vectors: products, then their sum."""
        count = MAX_TERMS if len(left) > MAX_TERMS else len(left)
        rest = float(left[count:] @ right[count:])
        factors = [
            f"{format_operand(a, self.decimals)}·{format_operand(b, self.decimals)}"
            for a, b in zip(left, right, strict=True)
        ]
        factors, terms = factors[:count], list(left[:count] * right[:count])
        if count < len(left):
            yield self.line(f"the other {len(left) - count} products", value=rest)
            factors, terms = [*factors, format_operand(rest, self.decimals)], [*terms, rest]
        yield self.line(label, " + ".join(factors), self.format_sum(terms), value=value)

    def format_sum(self, terms: Sequence[float]) -> str:
        return " + ".join(format_operand(term, self.decimals) for term in terms)

    def format(self, number: float) -> str:
        return format_number(number, self.decimals)

    def format_operand(self, number: float) -> str:
        return format_operand(number, self.decimals)


def _explain_given(cell: _CellContext) -> Iterator[ArithmeticLine]:
    yield ArithmeticLine("given", (), cell.value, cell.decimals)


def _explain_projection(cell: _CellContext) -> Iterator[ArithmeticLine]:
    """Query, key or value: the inputs times a weight matrix, or the inputs unchanged."""
    name = cell.step.base
    example, letter = cell.worked.example, {"query": "q", "key": "k", "value": "v"}[name]
    if getattr(example, letter) is not None or example.weights is not None:
        yield from _explain_given(cell)
        return
    source = cell.worked.find_values("source") if name != "query" else None
    inputs = cell.values_of("x") if source is None else source
    weights = cell.worked.find_values(f"w_{letter}")
    if weights is None:
        yield ArithmeticLine("input, unchanged", (), cell.value, cell.decimals)
        return
    column = weights[:, int(cell.step.columns[cell.column])]
    yield from cell.dot_product(name, inputs[cell.row], column, cell.value)


def _explain_scores(cell: _CellContext) -> Iterator[ArithmeticLine]:
    query, key = cell.values_of("query")[cell.row], cell.values_of("key")[cell.column]
    scoring = cell.worked.example.scoring
    if isinstance(scoring, AdditiveScoringConfig):
        yield from _explain_additive(cell, scoring, query, key)
    elif scoring == "cosine":
        yield from _explain_cosine(cell, query, key)
    else:
        yield from cell.dot_product("query · key", query, key, cell.value)


def _explain_cosine(cell: _CellContext, query: np.ndarray, key: np.ndarray) -> Iterator[ArithmeticLine]:
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
        yield ArithmeticLine("the cosine of a zero vector is 0", (), 0.0, cell.decimals)
    else:
        below = "·".join(map(cell.format, lengths))
        yield cell.line("cosine", f"{cell.format_operand(dot)} / ({below})", value=cell.value)


def _explain_additive(
    cell: _CellContext, scoring: AdditiveScoringConfig, query: np.ndarray, key: np.ndarray
) -> Iterator[ArithmeticLine]:
    projected_query, projected_key = query @ np.asarray(scoring.w), key @ np.asarray(scoring.u)
    activated = np.tanh(projected_query + projected_key)
    for index, (left, right, activation) in enumerate(zip(projected_query, projected_key, activated, strict=True)):
        yield from cell.dot_product(f"query · w, {index}", query, np.asarray(scoring.w)[:, index], left)
        yield from cell.dot_product(f"key · u, {index}", key, np.asarray(scoring.u)[:, index], right)
        yield cell.line(f"tanh, {index}", f"tanh({cell.format(left)} + {cell.format_operand(right)})", value=activation)
    yield from cell.dot_product("score", np.asarray(scoring.v, float), activated, cell.value)


def _explain_scaled(cell: _CellContext) -> Iterator[ArithmeticLine]:
    example, score = cell.worked.example, float(cell.values_of("scores")[cell.row, cell.column])
    if example.scale is not None:
        yield cell.line(
            "scaled", f"{cell.format_operand(score)}·{cell.format_operand(example.scale)}", value=cell.value
        )
    elif example.scoring == "scaled-dot":
        width = cell.values_of("key").shape[-1]
        yield cell.line("square root of d_k", f"√{width}", value=math.sqrt(width))
        yield cell.line("scaled", f"{cell.format_operand(score)} / {cell.format(math.sqrt(width))}", value=cell.value)
    else:
        yield cell.line("score, unchanged", value=cell.value)


def _explain_masked(cell: _CellContext) -> Iterator[ArithmeticLine]:
    if cell.masked:
        yield ArithmeticLine("masked for this query", (), -math.inf, cell.decimals)
        return
    scaled, bias = float(cell.values_of("scaled")[cell.row, cell.column]), cell.worked.example.bias
    if bias is None:
        yield cell.line("not masked, unchanged", value=cell.value)
    else:
        added = float(bias[cell.row][cell.column])
        yield cell.line("with M", f"{cell.format_operand(scaled)} + {cell.format_operand(added)}", value=cell.value)


def _explain_weights(cell: _CellContext) -> Iterator[ArithmeticLine]:
    if cell.worked.example.weights is not None:
        yield from _explain_given(cell)
    elif cell.masked:
        yield ArithmeticLine("masked for this query", (), 0.0, cell.decimals)
    else:
        table = cell.worked.find_values("masked", cell.step.head)
        scores = (cell.values_of("scaled") if table is None else table)[cell.row]
        yield from {"softmax": _explain_softmax, "sum": _explain_sum_normalisation, "none": _explain_unnormalised}[
            cell.worked.example.normalise
        ](cell, scores)


def _explain_softmax(cell: _CellContext, scores: np.ndarray) -> Iterator[ArithmeticLine]:
    """Softmax: e^score of every unmasked key in the row, their sum, and the quotient."""
    visible_keys = [index for index, score in enumerate(scores) if score != -math.inf]
    largest = float(max(scores[index] for index in visible_keys))
    shift = 0.0 if UNSHIFTED_SCORE_RANGE[0] <= largest <= UNSHIFTED_SCORE_RANGE[1] else largest
    if shift:
        yield cell.line("the largest score is subtracted, the softmax stays the same", value=largest)
    powers = {index: math.exp(scores[index] - shift) for index in visible_keys}
    listed = [index for index in visible_keys if index == cell.column or index in visible_keys[: MAX_TERMS - 1]]
    for index in listed:
        inner = (
            f"({cell.format(scores[index])} - {cell.format_operand(shift)})"
            if shift
            else cell.format_operand(scores[index])
        )
        yield cell.line(token_label(cell.worked.keys[index]), f"e^{inner}", value=powers[index])
    terms = [powers[index] for index in listed]
    if len(listed) < len(visible_keys):
        terms.append(sum(powers[index] for index in visible_keys if index not in set(listed)))
        yield cell.line(f"the other {len(visible_keys) - len(listed)} powers", value=terms[-1])
    total = sum(powers.values())
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line("share", f"{cell.format(powers[cell.column])} / {cell.format(total)}", value=cell.value)


def _explain_sum_normalisation(cell: _CellContext, scores: np.ndarray) -> Iterator[ArithmeticLine]:
    visible_scores = [float(score) for score in scores if score != -math.inf]
    total, terms = math.fsum(visible_scores), visible_scores
    if len(visible_scores) > MAX_TERMS:
        terms = [*visible_scores[:MAX_TERMS], math.fsum(visible_scores[MAX_TERMS:])]
        yield cell.line(f"the other {len(visible_scores) - MAX_TERMS} scores", value=terms[-1])
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line(
        "share", f"{cell.format_operand(float(scores[cell.column]))} / {cell.format_operand(total)}", value=cell.value
    )


def _explain_unnormalised(cell: _CellContext, scores: np.ndarray) -> Iterator[ArithmeticLine]:
    yield cell.line("score, unchanged", value=cell.value)


def _explain_context(cell: _CellContext) -> Iterator[ArithmeticLine]:
    yield from cell.dot_product(
        "weights · values", cell.values_of("weights")[cell.row], cell.values_of("value")[:, cell.column], cell.value
    )


def _explain_concat(cell: _CellContext) -> Iterator[ArithmeticLine]:
    left = cell.column
    for head in cell.worked.heads:
        context = cell.worked.find_values("context", head)
        assert context is not None
        if left < context.shape[1]:
            yield cell.line(f"from head {head}, column {left}", value=cell.value)
            return
        left -= context.shape[1]


def _explain_output(cell: _CellContext) -> Iterator[ArithmeticLine]:
    concat = cell.worked.find_values("concat")
    label, inputs = ("context · W_O", cell.values_of("context")) if concat is None else ("concat · W_O", concat)
    yield from cell.dot_product(label, inputs[cell.row], cell.values_of("w_o")[:, cell.column], cell.value)


_EXPLAINERS: dict[str, Callable[[_CellContext], Iterator[ArithmeticLine]]] = {
    **dict.fromkeys(("x", "source", "w_q", "w_k", "w_v", "w_o"), _explain_given),
    **dict.fromkeys(("query", "key", "value"), _explain_projection),
    "scores": _explain_scores,
    "scaled": _explain_scaled,
    "masked": _explain_masked,
    "weights": _explain_weights,
    "context": _explain_context,
    "concat": _explain_concat,
    "output": _explain_output,
}
