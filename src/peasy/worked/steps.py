"""Steps of attention for the computation graph: projection, heads, scores, scale, mask, softmax, concatenation.

All numbers are computed by functions of `formula`; a step says which of them, and writes the arithmetic of a cell.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.arrays import project, shape_mismatch
from peasy.formula.attention import apply_mask, scale_scores
from peasy.formula.heads import split_heads
from peasy.formula.normalise import Normalisation
from peasy.formula.scoring import Additive, Scoring
from peasy.formula.step import Array, Namespace
from peasy.worked import intervals
from peasy.worked.graph import MAX_TERMS, ArithmeticLine, CellContext, Step, format_product, format_sum
from peasy.worked.intervals import Interval
from peasy.worked.label import format_number, format_operand, token_label

_UNSHIFTED_SCORE_RANGE = (-1.0, 30.0)
"""If a row's largest score is outside this range, e^score would be too small or too long to read; the largest
score is then subtracted first, which leaves the softmax unchanged."""

_MAX_CORNERS = 4_000_000
"""Up to this many numbers, bounds of a softmax are computed at the corners of its row, where they are exact."""

_Lines = Iterator[ArithmeticLine]
_Inputs = Sequence[np.ndarray]


@dataclass(frozen=True)
class Unchanged(Step):
    """Copy of the input, such as queries without a projection."""

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the input."""
        return inputs[0]

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return nothing: the number is only copied."""
        return ""

    def lines(self, cell: CellContext) -> _Lines:
        """Yield one line."""
        yield cell.line("input, unchanged")


@dataclass(frozen=True)
class Project(Step):
    """Matrix product of two inputs, plus a bias row if there is a third: x · W + b."""

    label: str
    names: tuple[str, str]

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return x · W + b."""
        product = project(inputs[0], inputs[1], self.names)
        return product if len(inputs) == 2 else product + inputs[2]

    def terms(self, row: int, column: int, inputs: _Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return a row of the first and a column of the second matrix."""
        return inputs[0][row], inputs[1][:, column]

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the products and the bias as a sum."""
        pairs = np.stack(self.terms(row, column, inputs), axis=1)
        products = format_sum(pairs if len(pairs) <= 6 else pairs[pairs[:, 0] != 0], format_product)
        return products if len(inputs) == 2 else f"{products} + {format_operand(inputs[2][0, column])}"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the dot product of a row and a column."""
        bias = None if len(cell.inputs) == 2 else float(cell.inputs[2][0, cell.column])
        yield from cell.dot_product(self.label, *self.terms(cell.row, cell.column, cell.inputs), bias=bias)


@dataclass(frozen=True)
class SelectHead(Step):
    """Columns of one head; with fewer key/value heads than query heads, several query heads share one (GQA).

    Inputs are the matrix, then for keys and values the queries, whose head width they share.
    """

    head: int
    heads: int

    def first_column(self, inputs: Sequence[Array]) -> tuple[int, int]:
        """Return the first column and the width of the head."""
        width, own_heads = inputs[0].shape[-1], self.heads
        if len(inputs) > 1:
            d_head, remainder = divmod(inputs[1].shape[-1], self.heads)
            reference = inputs[-1].shape[-1] if len(inputs) > 2 else width
            own_heads, rest = divmod(reference, d_head) if d_head and not remainder else (self.heads, 0)
            if rest or not own_heads:
                raise InvalidInput(
                    f"Keys of width {reference} do not fit {self.heads} query heads of width {d_head}.",
                    hint=f"The columns of w_k must be a multiple of {d_head}.",
                )
        if width % own_heads:
            split_heads(np, np.empty((1, width)), own_heads)  # raises with the widths that fit
        return self.head * own_heads // self.heads * (width // own_heads), width // own_heads

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the columns of the head."""
        start, width = self.first_column(inputs)
        return inputs[0][:, start : start + width]

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return nothing: the number is only copied."""
        return ""

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the arithmetic of the cell in the whole matrix."""
        start, _ = self.first_column(cell.inputs)
        return cell.lines_of(0, cell.row, start + cell.column)


@dataclass(frozen=True)
class TransposeKeys(Step):
    """Transposed matrix."""

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the transposed input."""
        return xp.matrix_transpose(inputs[0])

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the place that the number comes from."""
        return f"row {column + 1}, column {row + 1} of K"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the place that the number comes from."""
        yield cell.line(self.summary(cell.row, cell.column, cell.inputs))


@dataclass(frozen=True)
class Score(Step):
    """Scores of every query on every key; `transposed` if the keys are given as Kᵀ."""

    scoring: Scoring
    transposed: bool = False

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the scores."""
        query, key = inputs[0], xp.matrix_transpose(inputs[1]) if self.transposed else inputs[1]
        scoring = self.scoring
        if query.shape[-1] != key.shape[-1] and not isinstance(scoring, Additive):
            raise shape_mismatch(("query", "keyᵀ"), query.shape, key.shape[::-1])
        if xp is intervals and isinstance(scoring, Additive):
            scoring = replace(scoring, **{name: Interval.exact(getattr(scoring, name)) for name in ("w", "u", "v")})
        return scoring.score(xp, query, key)

    def vectors(self, row: int, column: int, inputs: _Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the query and the key of a cell."""
        return inputs[0][row], inputs[1][:, column] if self.transposed else inputs[1][column]

    def terms(self, row: int, column: int, inputs: _Inputs) -> tuple[np.ndarray, np.ndarray] | None:
        """Return query and key, if the score is their dot product."""
        return self.vectors(row, column, inputs) if self.scoring.name in ("dot", "scaled-dot") else None

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the dot product, divided by both lengths for a cosine."""
        if isinstance(self.scoring, Additive):
            return "v · tanh(q W + k U)"
        query, key = self.vectors(row, column, inputs)
        dot = format_sum(np.stack([query, key], axis=1), format_product)
        if self.scoring.name != "cosine":
            return dot
        lengths = [format_number(float(np.linalg.norm(vector))) for vector in (query, key)]
        return f"({dot}) / ({lengths[0]} · {lengths[1]})"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the arithmetic of the score."""
        query, key = self.vectors(cell.row, cell.column, cell.inputs)
        if isinstance(self.scoring, Additive):
            yield from _additive_lines(cell, self.scoring, query, key)
        elif self.scoring.name == "cosine":
            yield from _cosine_lines(cell, query, key)
        else:
            yield from cell.dot_product("query · key", query, key)


def _cosine_lines(cell: CellContext, query: np.ndarray, key: np.ndarray) -> _Lines:
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


def _additive_lines(cell: CellContext, scoring: Additive, query: np.ndarray, key: np.ndarray) -> _Lines:
    projected_query, projected_key = query @ scoring.w, key @ scoring.u
    activated = np.tanh(projected_query + projected_key)
    for index, (left, right, activation) in enumerate(zip(projected_query, projected_key, activated, strict=True)):
        yield from cell.dot_product(f"query · w, {index}", query, scoring.w[:, index], left)
        yield from cell.dot_product(f"key · u, {index}", key, scoring.u[:, index], right)
        yield cell.line(f"tanh, {index}", f"tanh({cell.format(left)} + {cell.format_operand(right)})", value=activation)
    yield from cell.dot_product("score", np.asarray(scoring.v, float), activated)


@dataclass(frozen=True)
class Scale(Step):
    """Scaled scores; the second input, queries or keys, gives d_k. `scale` replaces the default 1/√d_k."""

    scoring: Scoring
    scale: float | None = None

    def factor(self, inputs: Sequence[Array]) -> float:
        """Return the factor that scales the scores."""
        width = inputs[1].shape[-1] if len(inputs) > 1 else 1
        return self.scoring.scale(width) if self.scale is None else self.scale

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the scaled scores."""
        return scale_scores(xp, inputs[0], self.factor(inputs), None)

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the quotient by √d_k, or the product with the scale."""
        if self.scale is None and self.scoring.name == "scaled-dot":
            return f"{format_number(inputs[0][row, column])} / √{inputs[1].shape[-1]}"
        return f"{format_number(inputs[0][row, column])} · {format_operand(self.factor(inputs))}"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield √d_k and the quotient."""
        score = cell.format_operand(float(cell.inputs[0][cell.row, cell.column]))
        if self.scale is not None:
            yield cell.line("scaled", f"{score}·{cell.format_operand(self.scale)}")
        elif self.scoring.name == "scaled-dot":
            width = cell.inputs[1].shape[-1]
            yield cell.line("square root of d_k", f"√{width}", value=math.sqrt(width))
            yield cell.line("scaled", f"{score} / {cell.format(math.sqrt(width))}")
        else:
            yield cell.line("score, unchanged")


@dataclass(frozen=True, eq=False)
class Mask(Step):
    """Scores with the bias M added and masked scores set to minus infinity; `mask` is True where attended."""

    mask: np.ndarray | None
    bias: np.ndarray | None

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the masked scores."""
        return apply_mask(xp, inputs[0], self.mask, self.bias)

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the score with M, or that the key is masked."""
        if self.mask is not None and not self.mask[row, column]:
            return "this key is masked for this query"
        bias = "" if self.bias is None else f" + {format_operand(self.bias[row, column])}"
        return format_number(inputs[0][row, column]) + bias

    def lines(self, cell: CellContext) -> _Lines:
        """Yield one line."""
        if self.mask is not None and not self.mask[cell.row, cell.column]:
            yield cell.line("masked for this query")
        elif self.bias is None:
            yield cell.line("not masked, unchanged")
        else:
            terms = float(cell.inputs[0][cell.row, cell.column]), float(self.bias[cell.row, cell.column])
            yield cell.line("with M", cell.format_sum(terms))


@dataclass(frozen=True)
class Normalise(Step):
    """Weights from masked scores: softmax, division by the sum, or none."""

    normalisation: Normalisation

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the weights."""
        return self.normalisation.apply(xp, inputs[0])

    def bounds(self, *inputs: Interval) -> Interval:
        """Return the bounds of the weights.

        A softmax weight grows with its own score and falls with all others of the row, so its bounds are reached with
        its own score at one end and the others at the other end.
        """
        scores = inputs[0]
        if self.normalisation.name != "softmax" or scores.low.size * scores.shape[-1] > _MAX_CORNERS:
            return super().bounds(*inputs)
        own = np.eye(scores.shape[-1], dtype=np.bool)
        known = np.repeat(np.all(scores.is_known, axis=-1, keepdims=True), scores.shape[-1], axis=-1)
        known |= scores.high == -np.inf
        ends = []
        for mine, others in ((scores.low, scores.high), (scores.high, scores.low)):
            corners = np.where(own, mine[:, None, :], others[:, None, :])
            with np.errstate(all="ignore"):
                ends.append(np.einsum("ijj->ij", self.forward(np, corners)))
        masked = scores.high == -np.inf
        low, high = (np.where(masked, 0.0, end) for end in ends)
        return Interval(np.where(known, low, -np.inf), np.where(known, high, np.inf))

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the quotient: the power of e divided by the sum of all powers in the row."""
        scores = inputs[0][row]
        if scores[column] == -np.inf:
            return "a masked key has weight 0"
        if self.normalisation.name == "none":
            return f"the score {format_number(scores[column])}, unchanged"
        power = "e^" if self.normalisation.name == "softmax" else ""
        total = format_sum(scores[scores != -np.inf], lambda score: power + format_operand(score))
        return f"{power}{format_operand(scores[column])} / ({total})"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the arithmetic of a weight."""
        scores = cell.inputs[0][cell.row]
        if scores[cell.column] == -np.inf:
            yield cell.line("masked for this query")
        elif self.normalisation.name == "none":
            yield cell.line("score, unchanged")
        else:
            yield from (_softmax_lines if self.normalisation.name == "softmax" else _division_lines)(cell, scores)


def _softmax_lines(cell: CellContext, scores: np.ndarray) -> _Lines:
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
        yield cell.line(token_label(cell.keys[index]), f"e^{exponent}", value=powers[index])
    terms = [powers[index] for index in listed]
    if len(listed) < len(visible_keys):
        terms.append(sum(powers[index] for index in visible_keys if index not in set(listed)))
        yield cell.line(f"the other {len(visible_keys) - len(listed)} powers", value=terms[-1])
    total = sum(powers.values())
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line("share", f"{cell.format(powers[cell.column])} / {cell.format(total)}")


def _division_lines(cell: CellContext, scores: np.ndarray) -> _Lines:
    """Division by the sum of the row."""
    visible = [float(score) for score in scores if score != -math.inf]
    terms, rest = visible[:MAX_TERMS], visible[MAX_TERMS:]
    if rest:
        terms.append(math.fsum(rest))
        yield cell.line(f"the other {len(rest)} scores", value=terms[-1])
    total = math.fsum(visible)
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line("share", f"{cell.format_operand(float(scores[cell.column]))} / {cell.format_operand(total)}")


@dataclass(frozen=True)
class Power(Step):
    """Powers of e of the masked scores, the numerators of softmax."""

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return e to the power of every number."""
        return xp.exp(inputs[0])

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the power."""
        return f"e^{format_operand(inputs[0][row, column])}"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the power."""
        yield cell.line("power", self.summary(cell.row, cell.column, cell.inputs))


@dataclass(frozen=True)
class RowSum(Step):
    """Sum of every row, one column; of the powers of e, the denominators of softmax."""

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the row sums."""
        return xp.sum(inputs[0], axis=-1, keepdims=True)

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the sum."""
        return format_sum(inputs[0][row], format_operand)

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the sum."""
        yield cell.line("sum", self.summary(cell.row, cell.column, cell.inputs))


@dataclass(frozen=True)
class Divide(Step):
    """Quotient of two inputs, such as the powers of e and their row sums."""

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the quotients."""
        return inputs[0] / inputs[1]

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return the quotient."""
        return f"{format_number(inputs[0][row, column])} / {format_number(inputs[1][row, 0])}"

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the quotient."""
        yield cell.line("share", self.summary(cell.row, cell.column, cell.inputs))


@dataclass(frozen=True)
class Concatenate(Step):
    """Contexts of all heads side by side."""

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return the inputs joined by columns."""
        return xp.concat(list(inputs), axis=-1)

    def summary(self, row: int, column: int, inputs: _Inputs) -> str:
        """Return nothing: the number is only copied."""
        return ""

    def lines(self, cell: CellContext) -> _Lines:
        """Yield the head and column that the number comes from."""
        head, column = divmod(cell.column, cell.inputs[0].shape[-1])
        yield cell.line(f"from head {head + 1}, column {column}")
