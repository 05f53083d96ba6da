"""Known slips of steps, as data: for each step, ways to compute it wrongly, with the name of the mistake.

A way gets the step and the values of its inputs, and returns wrong values, or the wrong inputs that were used. One that
does not apply gives another shape, fails, or gives the right numbers; none of these is reported. `{0}` and `{1}` in a
name are the inputs' names. Slips of attention that need other tables are functions of the step's place in the graph.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, permutations
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.activations import FUNCTIONS
from peasy.formula.masks import position_distances
from peasy.formula.scoring import NORMALISATIONS
from peasy.parameters import Record
from peasy.worked import operations, steps, training
from peasy.worked.graph import Step
from peasy.worked.label import format_number, format_operand
from peasy.worked.steps import Mask, Normalise, NormaliseGradient, Scale, Score

_Way = Callable[..., Any]
"""Computes a step the wrong way from the step and its inputs."""

Show = Callable[[int, int], str]
_SOFTMAX = Normalise(NORMALISATIONS["softmax"])


class Slip(Record):
    """Named mistake: its description, the table it gives, and the arithmetic of one cell ("" if there is none)."""

    description: str
    values: np.ndarray
    show: Show | None = None

    def reason(self, row: int, column: int) -> str:
        """Return the description with the arithmetic of a cell: `the scores were not scaled: e^1 / (...) = 0.42`."""
        arithmetic = self.show(row, column) if self.show else ""
        shown = f": {arithmetic} =" if arithmetic else ", which gives"
        return f"{self.description}{shown} {format_number(float(self.values[row, column]))}"


def recomputed(description: str, step: Step, *inputs: np.ndarray) -> Slip:
    """Return the slip of a step that is calculated from other inputs."""
    values = np.asarray(step.forward(np, *inputs), float)
    return Slip(description, values, lambda i, j: step.summary(i, j, inputs))


class StepPlace(Record):
    """Step of a node with the values and names of its inputs; `tables` are all right numbers, by node."""

    node: str
    step: Step
    inputs: tuple[np.ndarray, ...]
    names: tuple[str, ...]
    tables: Mapping[str, np.ndarray]

    def table(self, name: str) -> np.ndarray | None:
        """Return another table of the same head or block, else of the whole example."""
        prefix = self.node.removesuffix(self.node.rpartition(".")[2])
        return self.tables.get(prefix + name, self.tables.get(name))

    def slips(self) -> Iterator[Slip]:
        """Yield every slip of the step that applies: tables of the right shape with other numbers."""
        right = self.step.forward(np, *self.inputs)
        attention = _ATTENTION_SLIPS.get(type(self.step))
        for slip in chain(attention(self) if attention else (), self._listed()):
            same = slip.values.shape == right.shape
            if same and not np.allclose(slip.values, right, rtol=1e-9, atol=1e-12, equal_nan=True):
                yield slip

    def _listed(self) -> Iterator[Slip]:
        last = [name.rpartition(".")[2] for name in self.names]
        for name, way in STEP_SLIPS.get(type(self.step), ()):
            with suppress(InvalidInput, TypeError, ValueError, IndexError, ZeroDivisionError):
                found, text = way(self.step, *self.inputs), name.format(*last, "", "")
                is_inputs = isinstance(found, tuple)
                yield recomputed(text, self.step, *found) if is_inputs else Slip(text, np.asarray(found, float))


def _deviation(step: operations.Standardise, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Rows less their mean; of RMS norm, the rows."""
    return inputs[0] - inputs[1] if len(inputs) == 3 else inputs[0]


def _targets(logs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.asarray(-np.where(targets == 0, 0.0, targets * logs).sum(-1, keepdims=True))


def _weighted(factors: Sequence[float], inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(np.sum([factor * array for factor, array in zip(factors, inputs, strict=True)], axis=0))


STEP_SLIPS: dict[type[Step], tuple[tuple[str, _Way], ...]] = {
    operations.Project: (
        ("the bias was not added", lambda step, *x: x[:2]),
        ("the bias was subtracted", lambda step, x, w, b: step.forward(np, x, w) - b),
        ("{1} was transposed", lambda step, x, w, *b: (x, w.T, *b)),
        ("{0} was transposed", lambda step, x, w, *b: (x.T, w, *b)),
        ("{1} · {0} was calculated, in the wrong order", lambda step, x, w, *b: (w, x, *b)),
    ),
    operations.Add: (
        ("{1} was not added", lambda step, x, *others: x),
        ("{0} was not added", lambda step, x, *others: np.sum(others, axis=0)),
        ("{1} was subtracted instead of added", lambda step, x, y, *others: x - y + sum(others)),
        ("they were multiplied instead of added", lambda step, x, y: x * y),
    ),
    operations.Multiply: (
        ("{1} was left out", lambda step, x, y: x),
        ("{0} was left out", lambda step, x, y: y),
        ("they were added instead of multiplied", lambda step, x, y: x + y),
    ),
    operations.Sum: (("the mean was calculated instead of the sum", lambda step, x: x.mean(step.axis, keepdims=True)),),
    operations.Mean: (
        ("the sum was not divided by n", lambda step, x: step.forward(np, x) * x.shape[1]),
        ("the sum was divided by n - 1", lambda step, x: step.forward(np, x) * x.shape[1] / (x.shape[1] - 1)),
        ("the numbers were not squared", lambda step, x: x.mean(-1, keepdims=True)),
        ("the root was taken already", lambda step, x: np.sqrt(step.forward(np, x))),
    ),
    operations.Variance: (
        ("it was divided by n - 1 instead of n", lambda step, x, mean: x.var(-1, ddof=1, keepdims=True)),
        ("it was not divided by n", lambda step, x, mean: x.var(-1, keepdims=True) * x.shape[1]),
        ("the mean was not subtracted", lambda step, x, mean: (x**2).mean(-1, keepdims=True)),
        ("the root was taken: it is the standard deviation", lambda step, x, mean: x.std(-1, keepdims=True)),
        ("the deviations were not squared", lambda step, x, mean: np.abs(x - mean).mean(-1, keepdims=True)),
    ),
    operations.Standardise: (
        ("the root was forgotten", lambda step, *x: _deviation(step, x) / (x[-1] + step.eps)),
        ("ε was left out", lambda step, *x: _deviation(step, x) / np.sqrt(x[-1])),
        ("ε was added after the root", lambda step, *x: _deviation(step, x) / (np.sqrt(x[-1]) + step.eps)),
        ("the mean was not subtracted", lambda step, *x: x[0] / np.sqrt(x[-1] + step.eps)),
        ("the rows were not divided", lambda step, *x: _deviation(step, x)),
    ),
    operations.StandardiseGradient: (
        ("mean and variance were taken as fixed", lambda step, g, y, v: g / np.sqrt(v + step.eps)),
        ("the part through the variance was left out", lambda step, g, y, v: (
            (g - g.mean(-1, keepdims=True)) / np.sqrt(v + step.eps))),
        ("the part through the mean was left out", lambda step, g, y, v: (
            (g - y * (g * y).mean(-1, keepdims=True)) / np.sqrt(v + step.eps))),
    ),
    operations.Apply: (
        ("the function was not applied", lambda step, x: x),
        *((f"{name} was used instead", lambda step, x, name=name: FUNCTIONS[name].value(np, x))
          for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "relu_squared", "exp")),
        ("the logarithm to base 10 was taken", lambda step, x: np.log10(x)),
        ("2 was raised to the power instead of e", lambda step, x: 2.0**x),
        ("10 was raised to the power instead of e", lambda step, x: 10.0**x),
    ),
    operations.ApplyGradient: (
        ("the derivative was left out", lambda step, g, x, y: g),
        ("only the derivative was written", lambda step, g, x, y: step.function.slope(np, x, y)),
        ("the derivative was taken at the output", lambda step, g, x, y: g * step.function.slope(np, y, y)),
    ),
    operations.Repeat: (("it was not divided by n", lambda step, x, like: x + np.zeros(like.shape)),),
    NormaliseGradient: (
        ("the mean of the row was not subtracted", lambda step, g, a, x: a * g),
        ("only the diagonal of the Jacobian was used", lambda step, g, a, x: a * (1 - a) * g),
        ("the factor of the weights was left out", lambda step, g, a, x: g - (g * a).sum(-1, keepdims=True)),
    ),
    training.CrossEntropy: (
        ("the logarithm to base 10 was taken", lambda step, z, p, t: _targets(np.log10(p), t)),
        ("the logarithm to base 2 was taken", lambda step, z, p, t: _targets(np.log2(p), t)),
        ("the logarithm was forgotten", lambda step, z, p, t: (t * p).sum(-1, keepdims=True)),
        ("1 - p was written", lambda step, z, p, t: 1 - (t * p).sum(-1, keepdims=True)),
    ),
    training.TargetMean: (
        ("the sum was not divided by the number of tokens", lambda step, x, t: x.sum(0, keepdims=True)),
        ("tokens without a target were counted", lambda step, x, t: x.mean(0, keepdims=True)),
    ),
    training.TargetShare: (("it was not divided by the number of tokens", lambda step, g, t: g * t.any(1)[:, None]),),
    training.CrossEntropyGradient: (
        ("it was not divided by the number of tokens", lambda step, g, p, t: (p - t) * t.any(1, keepdims=True)),
        ("the target was not subtracted", lambda step, g, p, t: g * p),
    ),
    training.LabelSmoothing: (
        ("the targets were not smoothed", lambda step, t: t),
        ("the share was divided by one word less", lambda step, t: (
            np.where(t == 1, 1 - step.smoothing, step.smoothing / (t.shape[1] - 1)))),
    ),
    training.SquaredError: (
        ("½ was left out", lambda step, y, t: ((y - t) ** 2).sum(keepdims=True)),
        ("the mean was calculated instead of half the sum", lambda step, y, t: ((y - t) ** 2).mean(keepdims=True)),
        ("the differences were not squared", lambda step, y, t: np.abs(y - t).sum(keepdims=True) / 2),
    ),
    training.SquaredErrorGradient: (
        ("the factor 2 was kept, but ½ cancels it", lambda step, g, y, t: 2 * g * (y - t)),
    ),
    operations.WeightedSum: (
        ("{1} was added instead of subtracted", lambda step, *x: _weighted((step.factors[0], -step.factors[1]), x)),
        ("the factor of {1} was left out", lambda step, *x: _weighted(
            (step.factors[0], np.sign(step.factors[1])), x)),
        ("the two factors were swapped", lambda step, *x: _weighted(step.factors[::-1], x)),
        ("{0} was left out", lambda step, *x: step.factors[1] * x[1]),
    ),
    training.SecondMoment: (
        ("the gradient was not squared", lambda step, v, g: step.beta * v + (1 - step.beta) * g),
        ("the factor 1 - β was left out", lambda step, v, g: step.beta * v + g**2),
        ("β and 1 - β were swapped", lambda step, v, g: (1 - step.beta) * v + step.beta * g**2),
    ),
    training.BiasCorrection: (
        ("the bias correction was left out", lambda step, m: m),
        ("β was not raised to the number of the step", lambda step, m: m / (1 - step.beta)),
        ("it was multiplied instead of divided", lambda step, m: m * (1 - step.beta**step.step)),
    ),
    training.AdamWUpdate: (
        ("the step was added instead of subtracted", lambda step, w, m, v: 2 * w * (1 - step.lr * step.weight_decay)
            - step.forward(np, w, m, v)),
        ("the root of the second moment was forgotten", lambda step, w, m, v: (
            w * (1 - step.lr * step.weight_decay) - step.lr * m / (v + step.eps))),
        ("the weight decay was left out", lambda step, w, m, v: w - step.lr * m / (np.sqrt(v) + step.eps)),
        ("the learning rate was left out", lambda step, w, m, v: w - m / (np.sqrt(v) + step.eps)),
        ("only the step was written", lambda step, w, m, v: step.lr * m / (np.sqrt(v) + step.eps)),
    ),
    steps.PositionAngles: (
        ("positions were counted from 1", lambda step, *x: step.forward(np, *x) + step.forward(np, *x)[1:2]),
        ("the exponent was -i/d instead of -2i/d", lambda step, x: np.arange(len(x))[:, None] * step.base ** (
            -np.arange((x.shape[1] + 1) // 2) / x.shape[1])),
    ),
    steps.SineCosine: (("sine and cosine were swapped", lambda step, angles, x: np.stack(
        [np.cos(angles), np.sin(angles)], axis=-1).reshape(len(x), -1)[:, : x.shape[1]]),),
    steps.Rotate: (
        ("it was turned the other way", lambda step, x, angles: step.forward(np, x, -angles)),
        ("it was not turned", lambda step, x, angles: x),
    ),
}  # fmt: skip


def _scale_slips(at: StepPlace) -> Iterator[Slip]:
    assert isinstance(at.step, Scale)
    scores, key, x = at.inputs[0], at.table("key"), at.table("x")

    def divided(text: str, divisor: float, sign: str) -> Slip:
        return Slip(text, scores / divisor, lambda i, j: f"{format_number(scores[i, j])} {sign}")

    if at.step.scale is not None or at.step.scoring.name != "scaled-dot":
        if at.step.scale is None and at.step.scoring.name == "dot" and key is not None:
            text = "the scores were divided by √d_k, but they are not scaled here"
            yield Slip(text, scores / key.shape[-1] ** 0.5)
        return
    yield divided("the scores were not scaled", 1.0, "/ 1")
    widths = {"d_k": key, "d_model": x, "the number of tokens": scores}
    sizes = {name: table.shape[-1] for name, table in widths.items() if table is not None}
    own = sizes.get("d_k", 0)
    for name, size in sizes.items():
        yield divided(f"the scores were divided by {name} instead of √d_k", float(size), f"/ {size}")
        if size != own:
            yield divided(f"the scores were divided by √ of {name} instead of √d_k", size**0.5, f"/ √{size}")
    if own:
        root = own**0.5
        yield divided("the scores were multiplied by √d_k instead of divided", 1 / root, f"· √{own}")
        for short in (round(root, 1), round(root, 2)):
            if abs(short - root) > 1e-9:
                yield divided(f"√{own} was rounded too early, to {short:g}", short, f"/ {short:g}")
        whole = "the quotient was cut to a whole number"
        yield Slip(whole, np.floor(scores / root), lambda i, j: f"{format_number(scores[i, j])} // √{own}")


def _mask_slips(at: StepPlace) -> Iterator[Slip]:
    assert isinstance(at.step, Mask)
    scaled, mask, size = at.inputs[0], at.step.mask, at.inputs[0].shape
    distance = position_distances(np, *size)
    if mask is None:
        yield Slip("a causal mask was applied, but nothing is masked here", np.where(distance >= 0, scaled, -np.inf))
        return
    aligned = np.arange(size[0])[:, None] >= np.arange(size[1])[None, :]
    for text, wrong in (
        ("the mask was not applied", np.ones(size, bool)),
        ("the mask was inverted", ~mask),
        ("the mask was transposed", mask.T if size[0] == size[1] else np.ones(size, bool)),
        ("the mask was one position too strict", distance > 0),
        ("the mask was one position too wide", distance >= -1),
        ("masked scores were set to 0 instead of -∞", None),
        ("the mask was aligned with the first key instead of the last", aligned),
    ):
        yield Slip(text, np.where(mask, scaled, 0.0) if wrong is None else np.where(wrong, scaled, -np.inf))


def _score_slips(at: StepPlace) -> Iterator[Slip]:
    assert isinstance(at.step, Score)
    if at.step.scoring.name not in ("dot", "scaled-dot"):
        return
    query, key = at.inputs[0], at.inputs[1].T if at.step.transposed else at.inputs[1]
    value, x = at.table("value"), at.table("x")
    for text, left, right in (
        ("K·Qᵀ was calculated instead of Q·Kᵀ", key, query),
        ("Q·Qᵀ was calculated, with queries as keys", query, query),
        ("K·Kᵀ was calculated, with keys as queries", key, key),
        ("Q·Vᵀ was calculated, with values as keys", query, value),
        ("X·Xᵀ was calculated, without queries and keys", x, x),
    ):
        if left is not None and right is not None and left.shape[-1] == right.shape[-1]:
            yield _product(text, left, right.T)
    if query.shape[-1] == key.shape[0]:
        yield _product("Q·K was calculated, without transposing K", query, key)


def _product_slips(at: StepPlace) -> Iterator[Slip]:
    """Yield slips of a product of attention: the context, or queries, keys, values and the output from W."""
    assert isinstance(at.step, operations.Project)
    first, second = (name.rpartition(".")[2] for name in at.names[:2])
    if (first, second) == ("weights", "value"):
        yield from _context_slips(at, *at.inputs)
    if first not in ("x", "source", "context", "concat") or second not in ("w_q", "w_k", "w_v", "w_o"):
        return
    letter, (inputs, weights, *bias) = second[2:], at.inputs
    name = at.node.rpartition(".")[2]
    matrices = {f"W_{letter.upper()} was transposed": weights.T}
    for other in "qkv" if letter != "o" else "":
        matrix = at.table(f"w_{other}")
        if other != letter and matrix is not None:
            matrices[f"{name} used W_{other.upper()}"] = matrix
    for title, matrix in matrices.items():
        if matrix.shape[0] == inputs.shape[1] and (not bias or matrix.shape[1] == bias[0].shape[1]):
            yield recomputed(title, at.step, inputs, matrix, *bias)
    if bias:
        yield recomputed("the bias was not added", at.step, inputs, weights)
    x = at.table("x")
    if letter in "kv" and x is not None and x.shape[1] == weights.shape[0] and x is not inputs:
        yield _product("the inputs of the queries were used instead of the source", x, weights)


def _context_slips(at: StepPlace, weights: np.ndarray, value: np.ndarray) -> Iterator[Slip]:
    for name, text in (("key", "keys"), ("query", "queries"), ("x", "inputs")):
        other = at.table(name)
        if other is not None and len(other) == weights.shape[-1]:
            yield _product(f"the weights were multiplied by the {text} instead of the values", weights, other)
    if weights.shape[0] == weights.shape[1]:
        yield _product("the columns of the weights were used instead of the rows", weights.T, value)
    for name in ("scores", "scaled", "masked"):
        scores = at.table(name)
        if scores is not None and np.isfinite(scores).all():
            yield _product(f"the {name} were multiplied by the values, without softmax", scores, value)
    for text, row in (("averaged", value.mean(axis=0)), ("summed", value.sum(axis=0))):
        yield Slip(f"the values were {text}, without weights", np.broadcast_to(row, (len(weights), len(row))))


def _concat_slips(at: StepPlace) -> Iterator[Slip]:
    heads = at.inputs
    for order in permutations(range(len(heads))) if 2 <= len(heads) <= 4 else ():
        text = "the heads stand in another order: " + ", ".join(str(head + 1) for head in order)
        yield Slip(text, np.concat([heads[head] for head in order], axis=-1))
    yield Slip("the columns of the heads were interleaved", np.stack(heads, axis=-1).reshape(len(heads[0]), -1))


def _product(text: str, left: np.ndarray, right: np.ndarray) -> Slip:
    return recomputed(text, operations.Project("", ("", "")), left, right)


def _softmax(text: str, scores: np.ndarray) -> Slip:
    return recomputed(text, _SOFTMAX, scores)


def _quotient(text: str, above: np.ndarray, below: np.ndarray) -> Slip:
    wide = np.broadcast_to(below, above.shape)
    return Slip(text, above / wide, lambda i, j: f"{format_number(above[i, j])} / {format_number(wide[i, j])}")


def normalisation_slips(masked: np.ndarray) -> Iterator[Slip]:
    """Yield weights that were made from masked scores in a wrong way."""
    hidden = masked == -np.inf
    unmasked, weights = np.where(hidden, 0.0, masked), _SOFTMAX.forward(np, masked)
    powers = np.where(hidden, 0.0, np.exp(masked))
    sums = powers.sum(axis=-1, keepdims=True)
    columns = _SOFTMAX.forward(np, masked.T).T
    over_columns = "softmax was taken over columns instead of rows"
    yield Slip(over_columns, columns, lambda i, j: _SOFTMAX.summary(j, i, [masked.T]))
    total = unmasked.sum(axis=-1, keepdims=True)
    yield _quotient("the scores were divided by their sum, without e^x", unmasked, total)
    for base in (2, 10):
        raised = np.where(hidden, 0.0, float(base) ** masked)
        yield _quotient(f"{base}^x was used instead of e^x", raised, raised.sum(axis=-1, keepdims=True))
    yield _quotient("softmax was taken over the whole table", powers, powers.sum())
    yield Slip("e^x was not divided by the sum of the row", powers, lambda i, j: f"e^{format_operand(masked[i, j])}")
    twice = _softmax("softmax was applied twice", weights)
    yield Slip(twice.description, np.where(hidden, 0.0, twice.values), twice.show)
    yield from [twice] if hidden.any() else []  # of the weights 0 too
    yield Slip("softmax was not applied", unmasked)
    yield _softmax("softmax was taken of the negative scores", np.where(hidden, -np.inf, -masked))
    largest = np.max(powers, axis=-1, keepdims=True)
    yield _quotient("e^x was divided by the largest power instead of the sum", powers, largest)
    yield Slip("all weight was put on the largest score", (masked == np.max(masked, axis=-1, keepdims=True)) * 1.0)
    yield _quotient("the sigmoid was used instead of softmax", powers, 1 + powers)
    for decimals in (1, 2):
        early = np.round(powers, decimals)
        text = f"e^x was rounded too early, to {decimals} {'decimal' if decimals == 1 else 'decimals'}"
        if not np.allclose(early, powers, atol=1e-9, rtol=0) and np.isfinite(sums).all():
            yield _quotient(text, early, early.sum(axis=-1, keepdims=True))
    count = np.full_like(sums, powers.shape[-1])
    yield _quotient("e^x was divided by the number of keys instead of the sum", powers, count)


def _weights_slips(at: StepPlace) -> Iterator[Slip]:
    assert isinstance(at.step, Normalise)
    if at.step.normalisation.name != "softmax":
        return
    masked, scaled = at.inputs[0], at.table("scaled")
    yield from normalisation_slips(masked)
    if scaled is not None and np.isneginf(masked).any():
        text = "the mask was applied after the softmax, and the rows were not divided by their new sums"
        yield Slip(text, np.where(np.isneginf(masked), 0.0, _SOFTMAX.forward(np, scaled)))


_ATTENTION_SLIPS: dict[type[Step], Callable[[StepPlace], Iterator[Slip]]] = {
    Scale: _scale_slips, Mask: _mask_slips, Score: _score_slips, Normalise: _weights_slips,
    operations.Project: _product_slips, operations.Concatenate: _concat_slips,
}  # fmt: skip
