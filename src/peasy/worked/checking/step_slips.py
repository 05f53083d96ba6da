"""Known slips of steps, as data: for each step, ways to compute it wrongly, with the name of the mistake.

A way gets the step and the values of its inputs. One that does not apply gives another shape, fails, or gives the
right numbers; none of these is reported. `{0}` and `{1}` in a name are the inputs' names.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.activations import FUNCTIONS
from peasy.worked import losses, operations, position_steps, updates
from peasy.worked.graph import Step
from peasy.worked.steps import NormaliseGradient

_Way = Callable[..., Any]
"""Computes a step the wrong way from the step and its inputs."""


def _deviation(step: operations.Standardise, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Rows less their mean; of RMS norm, the rows."""
    return inputs[0] - inputs[1] if len(inputs) == 3 else inputs[0]


def _targets(logs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.asarray(-np.where(targets == 0, 0.0, targets * logs).sum(-1, keepdims=True))


def _weighted(factors: Sequence[float], inputs: Sequence[np.ndarray]) -> np.ndarray:
    return np.asarray(np.sum([factor * array for factor, array in zip(factors, inputs, strict=True)], axis=0))


STEP_SLIPS: dict[type[Step], tuple[tuple[str, _Way], ...]] = {
    operations.Project: (
        ("the bias was not added", lambda step, *x: step.forward(np, *x[:2])),
        ("the bias was subtracted", lambda step, x, w, b: step.forward(np, x, w) - b),
        ("{1} was transposed", lambda step, x, w, *b: step.forward(np, x, w.T, *b)),
        ("{0} was transposed", lambda step, x, w, *b: step.forward(np, x.T, w, *b)),
        ("{1} · {0} was calculated, in the wrong order", lambda step, x, w, *b: step.forward(np, w, x, *b)),
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
    losses.CrossEntropy: (
        ("the logarithm to base 10 was taken", lambda step, z, p, t: _targets(np.log10(p), t)),
        ("the logarithm to base 2 was taken", lambda step, z, p, t: _targets(np.log2(p), t)),
        ("the logarithm was forgotten", lambda step, z, p, t: (t * p).sum(-1, keepdims=True)),
        ("1 - p was written", lambda step, z, p, t: 1 - (t * p).sum(-1, keepdims=True)),
    ),
    losses.TargetMean: (
        ("the sum was not divided by the number of tokens", lambda step, x, t: x.sum(0, keepdims=True)),
        ("tokens without a target were counted", lambda step, x, t: x.mean(0, keepdims=True)),
    ),
    losses.TargetShare: (("it was not divided by the number of tokens", lambda step, g, t: g * t.any(1)[:, None]),),
    losses.CrossEntropyGradient: (
        ("it was not divided by the number of tokens", lambda step, g, p, t: (p - t) * t.any(1, keepdims=True)),
        ("the target was not subtracted", lambda step, g, p, t: g * p),
    ),
    losses.LabelSmoothing: (
        ("the targets were not smoothed", lambda step, t: t),
        ("the share was divided by one word less", lambda step, t: (
            np.where(t == 1, 1 - step.smoothing, step.smoothing / (t.shape[1] - 1)))),
    ),
    losses.SquaredError: (
        ("½ was left out", lambda step, y, t: ((y - t) ** 2).sum(keepdims=True)),
        ("the mean was calculated instead of half the sum", lambda step, y, t: ((y - t) ** 2).mean(keepdims=True)),
        ("the differences were not squared", lambda step, y, t: np.abs(y - t).sum(keepdims=True) / 2),
    ),
    losses.SquaredErrorGradient: (("the factor 2 was kept, but ½ cancels it", lambda step, g, y, t: 2 * g * (y - t)),),
    operations.WeightedSum: (
        ("{1} was added instead of subtracted", lambda step, *x: _weighted((step.factors[0], -step.factors[1]), x)),
        ("the factor of {1} was left out", lambda step, *x: _weighted(
            (step.factors[0], np.sign(step.factors[1])), x)),
        ("the two factors were swapped", lambda step, *x: _weighted(step.factors[::-1], x)),
        ("{0} was left out", lambda step, *x: step.factors[1] * x[1]),
    ),
    updates.SecondMoment: (
        ("the gradient was not squared", lambda step, v, g: step.beta * v + (1 - step.beta) * g),
        ("the factor 1 - β was left out", lambda step, v, g: step.beta * v + g**2),
        ("β and 1 - β were swapped", lambda step, v, g: (1 - step.beta) * v + step.beta * g**2),
    ),
    updates.BiasCorrection: (
        ("the bias correction was left out", lambda step, m: m),
        ("β was not raised to the number of the step", lambda step, m: m / (1 - step.beta)),
        ("it was multiplied instead of divided", lambda step, m: m * (1 - step.beta**step.step)),
    ),
    updates.AdamWUpdate: (
        ("the step was added instead of subtracted", lambda step, w, m, v: 2 * w * (1 - step.lr * step.weight_decay)
            - step.forward(np, w, m, v)),
        ("the root of the second moment was forgotten", lambda step, w, m, v: (
            w * (1 - step.lr * step.weight_decay) - step.lr * m / (v + step.eps))),
        ("the weight decay was left out", lambda step, w, m, v: w - step.lr * m / (np.sqrt(v) + step.eps)),
        ("the learning rate was left out", lambda step, w, m, v: w - m / (np.sqrt(v) + step.eps)),
        ("only the step was written", lambda step, w, m, v: step.lr * m / (np.sqrt(v) + step.eps)),
    ),
    position_steps.PositionAngles: (
        ("positions were counted from 1", lambda step, *x: step.forward(np, *x) + step.forward(np, *x)[1:2]),
        ("the exponent was -i/d instead of -2i/d", lambda step, x: np.arange(len(x))[:, None] * step.base ** (
            -np.arange((x.shape[1] + 1) // 2) / x.shape[1])),
    ),
    position_steps.SineCosine: (("sine and cosine were swapped", lambda step, angles, x: np.stack(
        [np.cos(angles), np.sin(angles)], axis=-1).reshape(len(x), -1)[:, : x.shape[1]]),),
    position_steps.Rotate: (
        ("it was turned the other way", lambda step, x, angles: step.forward(np, x, -angles)),
        ("it was not turned", lambda step, x, angles: x),
    ),
}  # fmt: skip


def step_slips(step: Step, inputs: Sequence[np.ndarray], names: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the table of every slip of a step that applies to these inputs."""
    shown = [name.rpartition(".")[2] for name in names]
    right = step.forward(np, *inputs)
    for name, way in STEP_SLIPS.get(type(step), ()):
        with suppress(InvalidInput, TypeError, ValueError, IndexError, ZeroDivisionError):
            values = np.asarray(way(step, *inputs), float)
            if values.shape == right.shape and not np.allclose(values, right, rtol=1e-9, atol=1e-12, equal_nan=True):
                yield name.format(*shown, "", ""), values
