"""Steps of attention for the computation graph, with their gradients: heads, scores, scale, mask, softmax, positions.

All numbers are computed by functions of `formula`; a step says which of them, and writes the arithmetic of a cell.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.arrays import shape_mismatch
from peasy.formula.attention import apply_mask, normalise_scores, scale_scores
from peasy.formula.heads import split_heads
from peasy.formula.positions import LAYOUTS, rotary, sinusoidal
from peasy.formula.scoring import NORMALISATIONS, Additive, CosineSimilarity, Normalisation, Scoring
from peasy.formula.step import Array, Namespace
from peasy.worked import intervals
from peasy.worked.graph import MAX_TERMS, Application, CellContext, Route, Step, format_product, format_sum, operands
from peasy.worked.intervals import Interval
from peasy.worked.label import format_number, format_operand, token_label
from peasy.worked.operations import Gradients, Inputs, Lines, PlaceColumns, Project, Unchanged

_UNSHIFTED_SCORE_RANGE = (-1.0, 30.0)
"""If a row's largest score is outside this range, e^score would be too small or too long to read; the largest
score is then subtracted first, which leaves the softmax unchanged."""

_MAX_CORNERS = 4_000_000
"""Up to this many numbers, bounds of a softmax are computed at the corners of its row, where they are exact."""


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
                message = f"Keys of width {reference} do not fit {self.heads} query heads of width {d_head}."
                raise InvalidInput(message, hint=f"The columns of w_k must be a multiple of {d_head}.")
        if width % own_heads:
            split_heads(np, np.empty((1, width)), own_heads)  # raises with the widths that fit
        return self.head * own_heads // self.heads * (width // own_heads), width // own_heads

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        start, width = self.first_column(inputs)
        return inputs[0][:, start : start + width]

    def lines(self, cell: CellContext) -> Lines:
        start, _ = self.first_column(cell.inputs)
        return cell.lines_of(0, cell.row, start + cell.column)

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient in the columns of this head."""
        start, _ = self.first_column([np.empty(shape) for shape in at.shapes])
        return Route(PlaceColumns((start,), at.shapes[0][1]), (at.gradient,)), *(None for _ in at.inputs[1:])


class Score(Step):
    """Scores of every query on every key; `transposed` if the keys are given as Kᵀ."""

    scoring: Scoring
    transposed: bool = False
    tex = r"$0 $1^{\top}"

    def __post_init__(self) -> None:
        vars(self).update(sentence=self.scoring.description)

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        query, key = inputs[0], xp.matrix_transpose(inputs[1]) if self.transposed else inputs[1]
        scoring = self.scoring
        if query.shape[-1] != key.shape[-1] and not isinstance(scoring, Additive):
            raise shape_mismatch(("query", "keyᵀ"), query.shape, key.shape[::-1])
        if xp is intervals and isinstance(scoring, Additive):
            scoring = replace(scoring, **{name: Interval.exact(getattr(scoring, name)) for name in ("w", "u", "v")})
        return scoring.score(xp, query, key)

    def vectors(self, row: int, column: int, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the query and the key of a cell."""
        return inputs[0][row], inputs[1][:, column] if self.transposed else inputs[1][column]

    def terms(self, row: int, column: int, inputs: Inputs) -> tuple[np.ndarray, np.ndarray] | None:
        return self.vectors(row, column, inputs) if self.scoring.name in ("dot", "scaled-dot") else None

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        if isinstance(self.scoring, Additive):
            return "v · tanh(q W + k U)"
        query, key = self.vectors(row, column, inputs)
        dot = format_sum(np.stack([query, key], axis=1), format_product)
        if self.scoring.name != "cosine":
            return dot
        lengths = [format_number(float(np.linalg.norm(vector))) for vector in (query, key)]
        return f"({dot}) / ({lengths[0]} · {lengths[1]})"

    def lines(self, cell: CellContext) -> Lines:
        query, key = self.vectors(cell.row, cell.column, cell.inputs)
        if isinstance(self.scoring, Additive):
            yield from _additive_lines(cell, self.scoring, query, key)
        elif self.scoring.name == "cosine":
            yield from _cosine_lines(cell, query, key)
        else:
            yield from cell.dot_product("query · key", query, key)

    def gradients(self, at: Application) -> Gradients:
        """Return dQ = dS · K and dK = dSᵀ · Q; for a cosine, by its own step."""
        query, key = at.inputs
        if isinstance(self.scoring, CosineSimilarity):
            pairs = ((False, query, key), (True, key, query))
            return tuple(Route(CosineGradient(which), (at.gradient, at.output, *both)) for which, *both in pairs)
        if isinstance(self.scoring, Additive):
            return super().gradients(at)
        return Route(Project("gradient · key"), (at.gradient, key)), Route(
            Project("gradient · query", transposed="left"), (at.gradient, query)
        )


class CosineGradient(Step):
    """Gradient of queries, or of keys, through their cosines; inputs are dS, S, own and other vectors."""

    of_keys: bool
    output_axes = ("2r", "2c")
    label = "gradient"
    sentence = "Only the part at a right angle to the vector counts: its length does not change the cosine."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return (dS · unit others - (row sum of dS ⊙ S) · unit own) / length of own."""
        gradient, scores = (xp.matrix_transpose(array) if self.of_keys else array for array in inputs[:2])
        own, other = (array / xp.sqrt(xp.sum(array * array, axis=-1, keepdims=True)) for array in inputs[2:])
        length = xp.sqrt(xp.sum(inputs[2] * inputs[2], axis=-1, keepdims=True))
        return (gradient @ other - xp.sum(gradient * scores, axis=-1, keepdims=True) * own) / length

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        gradient, scores = (array.T if self.of_keys else array for array in inputs[:2])
        own, other = (array / np.linalg.norm(array, axis=1, keepdims=True) for array in inputs[2:])
        numbers = (gradient @ other)[row, column], (gradient * scores).sum(1)[row], own[row, column]
        first, second, third = (format_operand(float(number), decimals) for number in numbers)
        return f"({first} - {second}·{third}) / {format_number(float(np.linalg.norm(inputs[2][row])), decimals)}"


def _cosine_lines(cell: CellContext, query: np.ndarray, key: np.ndarray) -> Lines:
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


def _additive_lines(cell: CellContext, scoring: Additive, query: np.ndarray, key: np.ndarray) -> Lines:
    projected_query, projected_key = query @ scoring.w, key @ scoring.u
    activated = np.tanh(projected_query + projected_key)
    for index, (left, right, activation) in enumerate(zip(projected_query, projected_key, activated, strict=True)):
        yield from cell.dot_product(f"query · w, {index}", query, scoring.w[:, index], left)
        yield from cell.dot_product(f"key · u, {index}", key, scoring.u[:, index], right)
        yield cell.line(f"tanh, {index}", f"tanh({cell.format(left)} + {cell.format_operand(right)})", value=activation)
    yield from cell.dot_product("score", np.asarray(scoring.v, float), activated)


class Scale(Step):
    """Scaled scores; the second input, queries or keys, gives d_k. `scale` replaces the default 1/√d_k.

    A `softcap` c then limits each number to c · tanh(number / c).
    """

    scoring: Scoring
    scale: float | None = None
    softcap: float | None = None
    label = "scaled"
    sentence = "Each number is multiplied by the scale of the scores."

    def factor(self, inputs: Sequence[Array]) -> float:
        """Return the factor that scales the scores."""
        width = inputs[1].shape[-1] if len(inputs) > 1 else 1
        return self.scoring.scale(width) if self.scale is None else self.scale

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        return scale_scores(xp, inputs[0], self.factor(inputs), self.softcap)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        """Return the quotient by √d_k, or the product with the scale, inside tanh if there is a soft cap."""
        score = format_number(inputs[0][row, column], decimals)
        if self.scale is None and self.scoring.name == "scaled-dot":
            scaled = f"{score} / √{inputs[1].shape[-1]}"
        else:
            scaled = f"{score} · {format_operand(self.factor(inputs))}"
        return scaled if self.softcap is None else f"{self.softcap:g}·tanh(({scaled}) / {self.softcap:g})"

    def lines(self, cell: CellContext) -> Lines:
        """Yield √d_k and the quotient."""
        score = cell.format_operand(float(cell.inputs[0][cell.row, cell.column]))
        scaled, quotient = float(cell.inputs[0][cell.row, cell.column]) * self.factor(cell.inputs), ""
        if self.scale is not None:
            quotient = f"{score}·{cell.format_operand(self.scale)}"
        elif self.scoring.name == "scaled-dot":
            width = cell.inputs[1].shape[-1]
            yield cell.line("square root of d_k", f"√{width}", value=math.sqrt(width))
            quotient = f"{score} / {cell.format(math.sqrt(width))}"
        yield cell.line("scaled", quotient, value=scaled) if quotient else cell.line("score, unchanged", value=scaled)
        if self.softcap is not None:
            cap = f"{self.softcap:g}"
            yield cell.line("soft cap", f"{cap}·tanh({cell.format_operand(scaled)} / {cap})")

    def formula(self, *symbols: str) -> str:
        is_root = self.scale is None and self.scoring.name == "scaled-dot"
        return rf"\frac{{1}}{{\sqrt{{d_k}}}} {symbols[0]}" if is_root else rf"{self.factor(()):g} \, {symbols[0]}"

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient times the same factor, and the derivative of the soft cap."""
        route = Route(replace(self, softcap=None), (at.gradient, *at.inputs[1:]))
        if self.softcap is not None:
            factor = self.factor([np.empty(shape) for shape in at.shapes])
            route = Route(SoftcapGradient(factor, self.softcap), (at.gradient, at.output))
        return route, *(None for _ in at.inputs[1:])


class SoftcapGradient(Step):
    """Gradient of the scores through scale and soft cap c: dy · factor · (1 - (y / c)²); inputs are dy and y."""

    factor: float
    softcap: float
    label = "gradient"
    sentence = "The gradient times the scale and the derivative of tanh."
    tex = r"\frac{1}{\sqrt{d_k}} $0 \odot \left(1 - $1^2 / c^2\right)"

    def forward(self, xp: Namespace, gradient: Array, capped: Array) -> Array:
        return gradient * (1 - xp.square(capped / self.softcap)) * self.factor

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        gradient, capped = operands(row, column, inputs, decimals)
        return f"{gradient}·{format_number(self.factor, 15)}·(1 - ({capped} / {self.softcap:g})^2)"


class Mask(Step, eq=False):
    """Scores with the bias M added and masked scores set to minus infinity; `mask` is True where attended.

    A second input is one more bias, such as that of relative positions.
    """

    mask: np.ndarray | None
    bias: np.ndarray | None
    sentence = "Masked scores become minus infinity."
    tex = "$0 + M"

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        mask, bias = (None if array is None else xp.asarray(array) for array in (self.mask, self.bias))
        biases = [*([] if bias is None else [bias]), *inputs[1:]]
        return apply_mask(xp, inputs[0], mask, sum(biases[1:], biases[0]) if biases else None)

    def _terms(self, row: int, column: int, inputs: Inputs) -> list[float]:
        biases = [*([] if self.bias is None else [self.bias]), *inputs[1:]]
        return [float(array[row, column]) for array in (inputs[0], *biases)]

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        if self.mask is not None and not self.mask[row, column]:
            return "this key is masked for this query"
        score, *biases = self._terms(row, column, inputs)
        return " + ".join([format_number(score), *map(format_operand, biases)])

    def lines(self, cell: CellContext) -> Lines:
        if self.mask is not None and not self.mask[cell.row, cell.column]:
            yield cell.line("masked for this query")
        elif len(terms := self._terms(cell.row, cell.column, cell.inputs)) == 1:
            yield cell.line("not masked, unchanged")
        else:
            yield cell.line("with M", cell.format_sum(terms))

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient where nothing is masked: a masked score has gradient 0 already, from the softmax."""
        return tuple(Route(Unchanged(), (at.gradient,)) for _ in at.inputs)


class Normalise(Step):
    """Weights from masked scores: softmax, division by the sum, or none."""

    normalisation: Normalisation

    def __post_init__(self) -> None:
        vars(self).update(sentence=self.normalisation.description)

    def forward(self, xp: Namespace, scores: Array) -> Array:
        return self.normalisation.apply(xp, scores)

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

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        scores = inputs[0][row]
        if scores[column] == -np.inf:
            return "a masked key has weight 0"
        if self.normalisation.name == "none":
            return f"the score {format_number(scores[column])}, unchanged"
        power = "e^" if self.normalisation.name == "softmax" else ""
        total = format_sum(scores[scores != -np.inf], lambda score: power + format_operand(score))
        return f"{power}{format_operand(scores[column])} / ({total})"

    def lines(self, cell: CellContext) -> Lines:
        scores = cell.inputs[0][cell.row]
        if scores[cell.column] == -np.inf:
            yield cell.line("masked for this query")
        elif self.normalisation.name == "none":
            yield cell.line("score, unchanged")
        else:
            yield from (_softmax_lines if self.normalisation.name == "softmax" else _division_lines)(cell, scores)

    def formula(self, *symbols: str) -> str:
        return self.normalisation.tex % symbols[0]

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient of the scores: the row of the softmax Jacobian, or that of the division."""
        return (Route(NormaliseGradient(self.normalisation), (at.gradient, at.output, at.inputs[0])),)


class NormaliseGradient(Step):
    """Gradient of the scores; inputs are the gradient of the weights, the weights a, and the masked scores.

    Of a softmax a · (da - Σ da · a), of a division by the sum (da - Σ da · a) / sum, zero where masked.
    """

    normalisation: Normalisation
    label = "gradient"
    sentence = "Each gradient minus the weighted mean of its row, because a weight can only grow at the cost of others."

    def forward(self, xp: Namespace, gradient: Array, weights: Array, scores: Array) -> Array:
        if self.normalisation.name == "none":
            return xp.where(scores == -xp.inf, xp.zeros_like(gradient), gradient)
        centred = gradient - xp.sum(gradient * weights, axis=-1, keepdims=True)
        if self.normalisation.name == "softmax":
            return weights * centred
        visible = xp.where(scores == -xp.inf, xp.zeros_like(scores), scores)
        quotient = centred / xp.sum(visible, axis=-1, keepdims=True)
        return xp.where(scores == -xp.inf, xp.zeros_like(quotient), quotient)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        gradient, weight, _ = operands(row, column, inputs, decimals)
        if inputs[2][row, column] == -np.inf or self.normalisation.name == "none":
            return "0" if inputs[2][row, column] == -np.inf else gradient
        mean = format_operand(float((inputs[0][row] * inputs[1][row]).sum()), decimals)
        if self.normalisation.name == "softmax":
            return f"{weight}·({gradient} - {mean})"
        total = inputs[2][row][inputs[2][row] != -np.inf].sum()
        return f"({gradient} - {mean}) / {format_operand(float(total), decimals)}"

    def lines(self, cell: CellContext) -> Lines:
        if self.normalisation.name != "none" and cell.inputs[2][cell.row, cell.column] != -np.inf:
            gradient, weights = cell.inputs[0][cell.row], cell.inputs[1][cell.row]
            yield from cell.dot_product("gradients · weights of the row", gradient, weights, float(gradient @ weights))
        yield from super().lines(cell)

    def formula(self, *symbols: str) -> str:
        """Return a ⊙ (da - Σ da ⊙ a)."""
        gradient, weights, scores = symbols
        if self.normalisation.name == "none":
            return gradient
        centred = rf"\left({gradient} - \sum_j {gradient}_{{ij}} {weights}_{{ij}}\right)"
        share = rf"\frac{{1}}{{\sum_j {scores}_{{ij}}}}"
        return rf"{weights if self.normalisation.name == 'softmax' else share} \odot {centred}"


def _softmax_lines(cell: CellContext, scores: np.ndarray) -> Lines:
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


def _division_lines(cell: CellContext, scores: np.ndarray) -> Lines:
    """Division by the sum of the row."""
    visible = [float(score) for score in scores if score != -math.inf]
    terms, rest = visible[:MAX_TERMS], visible[MAX_TERMS:]
    if rest:
        terms.append(math.fsum(rest))
        yield cell.line(f"the other {len(rest)} scores", value=terms[-1])
    total = math.fsum(visible)
    yield cell.line("sum", cell.format_sum(terms), value=total)
    yield cell.line("share", f"{cell.format_operand(float(scores[cell.column]))} / {cell.format_operand(total)}")


class SinkSoftmax(Step):
    """Softmax with a sink: one more score that has no key; inputs are masked scores and the sinks of all heads."""

    head: int
    label = "share"
    sentence = "Softmax with the sink as one more score, so that the weights of a row sum to less than 1."
    tex = r"\operatorname{softmax}\left[$0\;\; $1\right]"

    def forward(self, xp: Namespace, masked: Array, sinks: Array) -> Array:
        return normalise_scores(xp, masked, NORMALISATIONS["softmax"], sinks[0, self.head])

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        scores, sink = inputs[0][row], inputs[1][0, self.head]
        if scores[column] == -np.inf:
            return "0"
        terms = [f"e^{format_operand(float(x), decimals)}" for x in (*scores[scores != -np.inf], sink)]
        return f"e^{format_operand(float(scores[column]), decimals)} / ({' + '.join(terms)})"

    def gradients(self, at: Application) -> Gradients:
        """Return the softmax gradient of the scores, and the gradient of the sinks."""
        scores = Route(NormaliseGradient(NORMALISATIONS["softmax"]), (at.gradient, at.output, at.inputs[0]))
        return scores, Route(SinkGradient(self.head, at.shapes[1][1]), (at.gradient, at.output))


class SinkGradient(Step):
    """Gradient of the sinks, nonzero for one head: minus the sink's weight times Σ da · a, summed over the queries."""

    head: int
    heads: int
    label = "gradient"
    sentence = "What the sink takes is missing from the weights: minus its weight times the weighted mean gradient."

    def forward(self, xp: Namespace, gradient: Array, weights: Array) -> Array:
        sink = 1 - xp.sum(weights, axis=-1, keepdims=True)
        total = -xp.sum(sink * xp.sum(gradient * weights, axis=-1, keepdims=True), axis=0, keepdims=True)
        return PlaceColumns((self.head,), self.heads).forward(xp, total)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        if column != self.head:
            return "0"
        pairs = zip(1 - inputs[1].sum(1), (inputs[0] * inputs[1]).sum(1), strict=True)
        return "-(" + " + ".join(f"{format_operand(a, decimals)}·{format_operand(b, decimals)}" for a, b in pairs) + ")"


class PositionAngles(Step):
    """Angle of each pair of columns at each position: p · base^(-2i/d), for the rows and columns of the input.

    A second input gives the frequencies, in place of base^(-2i/d).
    """

    base: float = 10000.0
    output_axes = ("0r", "pair")
    is_fixed = True
    label = "angle"
    sentence = "The angle of each pair of columns at each position: position times frequency."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        if len(inputs) > 1:
            return xp.asarray([[float(row)] for row in range(inputs[0].shape[0])], dtype=xp.float64) * inputs[1]
        return xp.asarray(sinusoidal(*inputs[0].shape, base=self.base).angle.tolist(), dtype=xp.float64)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        if len(inputs) > 1:
            return f"{row}·{format_operand(float(inputs[1][0, column]), max(decimals, 8))}"
        return f"{row}·{self.base:g}^(-2·{column} / {inputs[0].shape[1]})"

    def formula(self, *symbols: str) -> str:
        return rf"p \cdot {symbols[1]}" if len(symbols) > 1 else rf"p \cdot {self.base:g}^{{-2i/d}}"


class SineCosine(Step):
    """Sinusoidal position encoding: sine and cosine of each angle in turn; inputs are angles and embeddings."""

    output_axes = ("1r", "1c")
    is_fixed = True
    label = "encoding"
    sentence = "The sine and the cosine of each angle in turn: nearby positions get similar vectors."
    tex = r"\left[\sin $0,\; \cos $0\right]"

    def forward(self, xp: Namespace, angles: Array, x: Array) -> Array:
        parts = []
        for column in range(x.shape[1]):
            angle = angles[:, column // 2 : column // 2 + 1]
            parts.append(xp.cos(angle) if column % 2 else xp.sin(angle))
        return xp.concat(parts, axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return f"{'cos' if column % 2 else 'sin'}({format_number(inputs[0][row, column // 2], max(decimals, 6))})"


class Rotate(Step):
    """Rotation of each pair of columns by its angle (RoPE), or back with `inverse`; inputs are x and angles.

    Columns beyond the pairs that have an angle are kept. `factor` multiplies sine and cosine (YaRN).
    """

    layout: str = "halves"
    inverse: bool = False
    factor: float = 1.0
    label = "rotated"
    sentence = "Each pair of columns is turned by its angle, so that scores depend on the distance of two tokens only."

    def forward(self, xp: Namespace, x: Array, angles: Array) -> Array:
        """Return x cos + x̃ sin, where x̃ is x turned by 90 degrees."""
        width = 2 * angles.shape[1]
        x, rest = x[:, :width], x[:, width:]
        turn = xp.asarray(self._quarter_turn(width).tolist(), dtype=xp.float64)
        cosine, sine = (self._spread(xp, function(angles)) * self.factor for function in (xp.cos, xp.sin))
        rotated = x * cosine + (x @ turn) * sine
        return xp.concat([rotated, rest], axis=-1) if rest.shape[1] else rotated

    def _quarter_turn(self, width: int) -> np.ndarray:
        turn: np.ndarray = rotary(np.eye(width), positions=np.zeros(width), layout=self.layout).rotated_90
        return -turn if self.inverse else turn

    def _spread(self, xp: Namespace, pairs: Array) -> Array:
        """Return the number of each pair in both of its columns."""
        if not LAYOUTS[self.layout]:
            return xp.concat([pairs, pairs], axis=-1)
        return xp.concat([pairs[:, i // 2 : i // 2 + 1] for i in range(2 * pairs.shape[1])], axis=-1)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        width = 2 * inputs[1].shape[1]
        if column >= width:
            return ""
        pair = column // 2 if LAYOUTS[self.layout] else column % (width // 2)
        angle = format_number(inputs[1][row, pair], max(decimals, 6))
        own, other = inputs[0][row, column], (inputs[0][row, :width] @ self._quarter_turn(width))[column]
        numbers = [format_operand(float(number), decimals) for number in (own, other)]
        turned = f"{numbers[0]}·cos({angle}) + {numbers[1]}·sin({angle})"
        return turned if self.factor == 1 else f"{format_operand(self.factor, 8)}·({turned})"

    def formula(self, *symbols: str) -> str:
        x, angle = symbols
        sign = "-" if self.inverse else "+"
        turned = rf"{x} \odot \cos {angle} {sign} \tilde{{{x}}} \odot \sin {angle}"
        return turned if self.factor == 1 else rf"{self.factor:.6g} \left({turned}\right)"

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient turned back."""
        return Route(Rotate(self.layout, not self.inverse, self.factor), (at.gradient, at.inputs[1])), None
