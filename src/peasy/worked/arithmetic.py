"""Arithmetic of one cell, line by line: products and sums, roots and quotients, powers of e.

Only displayed numbers are rounded: each line's value is computed from all digits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from peasy.errors import NotFound, did_you_mean
from peasy.worked.example import AdditiveScoring
from peasy.worked.label import visible
from peasy.worked.number import bracket, show
from peasy.worked.work import Worked, WorkedStep

MOST_TERMS = 16
"""A longer sum is written with its first terms and one term for the rest."""

PLAIN_POWERS = (-1.0, 30.0)
"""If a row's largest score is outside this range, e^score would be too small or too long to read; the largest
score is then subtracted first, which leaves the softmax unchanged."""


@dataclass(frozen=True)
class Line:
    """One line of arithmetic; `expressions` are equal expressions, each evaluated a little further."""

    label: str
    ways: tuple[str, ...]
    value: float
    decimals: int = 4

    @property
    def text(self) -> str:
        """The line as text: `sum: 1 + 2 = 3`."""
        parts = [*self.ways, show(self.value, self.decimals)]
        return f"{self.label}: " + " = ".join(part for i, part in enumerate(parts) if i == 0 or part != parts[i - 1])


@dataclass(frozen=True)
class CellArithmetic:
    """Arithmetic of one cell; the last line gives its value."""

    step: str
    row: int
    column: int
    title: str
    lines: tuple[Line, ...]
    value: float

    @property
    def texts(self) -> tuple[str, ...]:
        """The lines as text."""
        return tuple(line.text for line in self.lines)


def arithmetic(worked: Worked, step: str, row: int | str, column: int | str, decimals: int = 4) -> CellArithmetic:
    """Return the arithmetic behind one cell of a step; `row` and `column` are positions or tokens.

    >>> from peasy.worked import load_example, work
    >>> for line in arithmetic(work(load_example("i-love-ai")), "weights", "I", "love").texts:
    ...     print(line)
    I: e^0 = 1
    love: e^0.7071 = 2.0281
    AI: e^0.7071 = 2.0281
    sum: 1 + 2.0281 + 2.0281 = 5.0562
    share: 2.0281 / 5.0562 = 0.4011
    """
    solved_step = worked.step(step)
    i, j = (
        place(row, solved_step.rows, f"row of {solved_step.name}"),
        place(column, solved_step.columns, f"column of {solved_step.name}"),
    )
    value = float(solved_step.values[i, j])
    with np.errstate(all="ignore"):
        lines = tuple(_WAYS[solved_step.base](_Cell(worked, solved_step, i, j, decimals)))
    if len(lines) == 1 and not lines[0].ways:
        lines = (Line(lines[0].label, (), value, decimals),)
    return CellArithmetic(solved_step.name, i, j, title_of(solved_step, i, j), lines, value)


def place(given: int | str, labels: Sequence[str], what: str) -> int:
    """Return the index of a label: a number counts from 0 (or from the end), anything else is a token."""
    number = given if isinstance(given, int) else _whole(given)
    if number is not None and -len(labels) <= number < len(labels):
        return number % len(labels)
    if isinstance(given, str):
        lowered = [label.lower() for label in labels]
        for known, wanted in ((list(labels), given), (lowered, given.lower())):
            if wanted in known:
                return known.index(wanted)
    shown = [visible(label) for label in labels[:20]]
    near = did_you_mean(given, shown) if isinstance(given, str) else None
    ellipsis = ", ..." if len(labels) > 20 else ""
    hint = near or f"Positions 0 to {len(labels) - 1}: {', '.join(shown)}{ellipsis}."
    raise NotFound(f"There is no {what} {visible(str(given))!r}.", hint=hint)


def title_of(step: WorkedStep, row: int, column: int) -> str:
    """Return the title of a cell: step, row label, column label."""
    sides = ((step.row_axis, step.rows[row]), (step.column_axis, step.columns[column]))
    return f"{step.name}: " + ", ".join(f"{axis} {visible(label)}" for axis, label in sides)


def _whole(text: str) -> int | None:
    try:
        return int(text) if len(text) < 12 else None
    except ValueError:
        return None


@dataclass(frozen=True)
class _Cell:
    """One cell of a step, with helpers that format its arithmetic."""

    worked: Worked
    step: WorkedStep
    row: int
    column: int
    decimals: int

    @property
    def value(self) -> float:
        return float(self.step.values[self.row, self.column])

    @property
    def hidden(self) -> bool:
        table = self.worked.may_look
        return table is not None and not table[self.row, self.column]

    def of(self, name: str) -> np.ndarray:
        values = self.worked.find(name, self.step.head)
        assert values is not None, name
        return values

    def line(self, label: str, *ways: str, value: float) -> Line:
        return Line(label, tuple(ways), float(value), self.decimals)

    def product(self, label: str, left: np.ndarray, right: np.ndarray, value: float) -> Iterator[Line]:
        """Yield the dot product of two vectors: products, then their sum."""
        count = MOST_TERMS if len(left) > MOST_TERMS else len(left)
        rest = float(left[count:] @ right[count:])
        factors = [f"{bracket(a, self.decimals)}·{bracket(b, self.decimals)}" for a, b in zip(left, right, strict=True)]
        factors, terms = factors[:count], list(left[:count] * right[:count])
        if count < len(left):
            yield self.line(f"the other {len(left) - count} products", value=rest)
            factors, terms = [*factors, bracket(rest, self.decimals)], [*terms, rest]
        yield self.line(label, " + ".join(factors), self.total(terms), value=value)

    def total(self, terms: Sequence[float]) -> str:
        return " + ".join(bracket(term, self.decimals) for term in terms)

    def show(self, number: float) -> str:
        return show(number, self.decimals)

    def bracket(self, number: float) -> str:
        return bracket(number, self.decimals)


def _given(cell: _Cell) -> Iterator[Line]:
    yield Line("given", (), cell.value, cell.decimals)


def _projected(cell: _Cell) -> Iterator[Line]:
    """Query, key or value: the inputs times a weight matrix, or the inputs unchanged."""
    name = cell.step.base
    example, letter = cell.worked.example, {"query": "q", "key": "k", "value": "v"}[name]
    if getattr(example, letter) is not None or example.weights is not None:
        yield from _given(cell)
        return
    source = cell.worked.find("source") if name != "query" else None
    inputs = cell.of("x") if source is None else source
    weights = cell.worked.find(f"w_{letter}")
    if weights is None:
        yield Line("input, unchanged", (), cell.value, cell.decimals)
        return
    column = weights[:, int(cell.step.columns[cell.column])]
    yield from cell.product(name, inputs[cell.row], column, cell.value)


def _scored(cell: _Cell) -> Iterator[Line]:
    query, key = cell.of("query")[cell.row], cell.of("key")[cell.column]
    scoring = cell.worked.example.scoring
    if isinstance(scoring, AdditiveScoring):
        yield from _added(cell, scoring, query, key)
    elif scoring == "cosine":
        yield from _cosine(cell, query, key)
    else:
        yield from cell.product("query · key", query, key, cell.value)


def _cosine(cell: _Cell, query: np.ndarray, key: np.ndarray) -> Iterator[Line]:
    dot = float(query @ key)
    yield from cell.product("query · key", query, key, dot)
    lengths = []
    for name, vector in (("query", query), ("key", key)):
        squares = " + ".join(f"{cell.bracket(component)}^2" for component in vector[:MOST_TERMS])
        rest = float((vector[MOST_TERMS:] ** 2).sum())
        squares += f" + {cell.show(rest)}" if len(vector) > MOST_TERMS else ""
        lengths.append(math.sqrt(float(vector @ vector)))
        yield cell.line(f"length of {name}", f"√({squares})", value=lengths[-1])
    if 0 in lengths:
        yield Line("the cosine of a zero vector is 0", (), 0.0, cell.decimals)
    else:
        below = "·".join(map(cell.show, lengths))
        yield cell.line("cosine", f"{cell.bracket(dot)} / ({below})", value=cell.value)


def _added(cell: _Cell, scoring: AdditiveScoring, query: np.ndarray, key: np.ndarray) -> Iterator[Line]:
    projected_query, projected_key = query @ np.asarray(scoring.w), key @ np.asarray(scoring.u)
    activated = np.tanh(projected_query + projected_key)
    for index, (left, right, activation) in enumerate(zip(projected_query, projected_key, activated, strict=True)):
        yield from cell.product(f"query · w, {index}", query, np.asarray(scoring.w)[:, index], left)
        yield from cell.product(f"key · u, {index}", key, np.asarray(scoring.u)[:, index], right)
        yield cell.line(f"tanh, {index}", f"tanh({cell.show(left)} + {cell.bracket(right)})", value=activation)
    yield from cell.product("score", np.asarray(scoring.v, float), activated, cell.value)


def _scaled(cell: _Cell) -> Iterator[Line]:
    example, score = cell.worked.example, float(cell.of("scores")[cell.row, cell.column])
    if example.scale is not None:
        yield cell.line("scaled", f"{cell.bracket(score)}·{cell.bracket(example.scale)}", value=cell.value)
    elif example.scoring == "scaled-dot":
        width = cell.of("key").shape[-1]
        yield cell.line("square root of d_k", f"√{width}", value=math.sqrt(width))
        yield cell.line("scaled", f"{cell.bracket(score)} / {cell.show(math.sqrt(width))}", value=cell.value)
    else:
        yield cell.line("score, unchanged", value=cell.value)


def _masked(cell: _Cell) -> Iterator[Line]:
    if cell.hidden:
        yield Line("masked for this query", (), -math.inf, cell.decimals)
        return
    scaled, bias = float(cell.of("scaled")[cell.row, cell.column]), cell.worked.example.bias
    if bias is None:
        yield cell.line("not masked, unchanged", value=cell.value)
    else:
        added = float(bias[cell.row][cell.column])
        yield cell.line("with M", f"{cell.bracket(scaled)} + {cell.bracket(added)}", value=cell.value)


def _weighed(cell: _Cell) -> Iterator[Line]:
    if cell.worked.example.weights is not None:
        yield from _given(cell)
    elif cell.hidden:
        yield Line("masked for this query", (), 0.0, cell.decimals)
    else:
        table = cell.worked.find("masked", cell.step.head)
        scores = (cell.of("scaled") if table is None else table)[cell.row]
        yield from {"softmax": _powers, "sum": _shares, "none": _unchanged}[cell.worked.example.normalise](cell, scores)


def _powers(cell: _Cell, scores: np.ndarray) -> Iterator[Line]:
    """Softmax: e^score of every unmasked key in the row, their sum, and the quotient."""
    visible_keys = [index for index, score in enumerate(scores) if score != -math.inf]
    largest = float(max(scores[index] for index in visible_keys))
    shift = 0.0 if PLAIN_POWERS[0] <= largest <= PLAIN_POWERS[1] else largest
    if shift:
        yield cell.line("the largest score is subtracted, the softmax stays the same", value=largest)
    powers = {index: math.exp(scores[index] - shift) for index in visible_keys}
    listed = [index for index in visible_keys if index == cell.column or index in visible_keys[: MOST_TERMS - 1]]
    for index in listed:
        inner = f"({cell.show(scores[index])} - {cell.bracket(shift)})" if shift else cell.bracket(scores[index])
        yield cell.line(visible(cell.worked.keys[index]), f"e^{inner}", value=powers[index])
    terms = [powers[index] for index in listed]
    if len(listed) < len(visible_keys):
        terms.append(sum(powers[index] for index in visible_keys if index not in set(listed)))
        yield cell.line(f"the other {len(visible_keys) - len(listed)} powers", value=terms[-1])
    total = sum(powers.values())
    yield cell.line("sum", cell.total(terms), value=total)
    yield cell.line("share", f"{cell.show(powers[cell.column])} / {cell.show(total)}", value=cell.value)


def _shares(cell: _Cell, scores: np.ndarray) -> Iterator[Line]:
    visible_scores = [float(score) for score in scores if score != -math.inf]
    total, terms = math.fsum(visible_scores), visible_scores
    if len(visible_scores) > MOST_TERMS:
        terms = [*visible_scores[:MOST_TERMS], math.fsum(visible_scores[MOST_TERMS:])]
        yield cell.line(f"the other {len(visible_scores) - MOST_TERMS} scores", value=terms[-1])
    yield cell.line("sum", cell.total(terms), value=total)
    yield cell.line("share", f"{cell.bracket(float(scores[cell.column]))} / {cell.bracket(total)}", value=cell.value)


def _unchanged(cell: _Cell, scores: np.ndarray) -> Iterator[Line]:
    yield cell.line("score, unchanged", value=cell.value)


def _summed(cell: _Cell) -> Iterator[Line]:
    yield from cell.product(
        "weights · values", cell.of("weights")[cell.row], cell.of("value")[:, cell.column], cell.value
    )


def _side_by_side(cell: _Cell) -> Iterator[Line]:
    left = cell.column
    for head in cell.worked.heads:
        context = cell.worked.find("context", head)
        assert context is not None
        if left < context.shape[1]:
            yield cell.line(f"from head {head}, column {left}", value=cell.value)
            return
        left -= context.shape[1]


def _mixed(cell: _Cell) -> Iterator[Line]:
    concat = cell.worked.find("concat")
    label, inputs = ("context · W_O", cell.of("context")) if concat is None else ("concat · W_O", concat)
    yield from cell.product(label, inputs[cell.row], cell.of("w_o")[:, cell.column], cell.value)


_WAYS: dict[str, Callable[[_Cell], Iterator[Line]]] = {
    **dict.fromkeys(("x", "source", "w_q", "w_k", "w_v", "w_o"), _given),
    **dict.fromkeys(("query", "key", "value"), _projected),
    "scores": _scored,
    "scaled": _scaled,
    "masked": _masked,
    "weights": _weighed,
    "context": _summed,
    "concat": _side_by_side,
    "output": _mixed,
}
