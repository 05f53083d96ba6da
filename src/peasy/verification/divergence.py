"""Divergence of two execution paths: the first layer, head and position whose activations differ."""

from collections.abc import Sequence

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import HEAD_STEPS
from peasy.verification.paths import ExecutionPath, StepRecorder, TokenSequence, uncached
from peasy.verification.tolerance import relative_error
from peasy.verification.verdict import DivergencePoint


def first_divergence(
    model: Model,
    other_model: Model,
    execution_path: ExecutionPath,
    sequences: Sequence[TokenSequence],
    index: int,
    tolerance: float,
) -> DivergencePoint | None:
    """Return the first step of sequence `index` where `other_model` on `execution_path` diverges from the reference."""
    reference, recorder = StepRecorder(index), StepRecorder(index)
    uncached(model, sequences, reference)
    execution_path(other_model, sequences, recorder)
    expected, actual = reference.concatenate(), recorder.concatenate()
    for (path, step), expected_values in expected.items():
        actual_values = actual.get((path, step))
        if actual_values is None:
            continue  # not computed on this path, e.g. a source that was encoded before
        point = _divergence_of_step(path, step, actual_values, expected_values, tolerance)
        if point is not None:
            return point
    return None


def divergence_of_logits(actual: Tensor, expected: Tensor, tolerance: float) -> DivergencePoint:
    """Return the first token whose logits differ, if no inner step does."""
    if actual.shape != expected.shape:
        return DivergencePoint("logits", None, "", "logits", None, 0)
    differs = relative_error(actual, expected).flatten(1).amax(dim=1) > tolerance
    return DivergencePoint("logits", None, "", "logits", None, int(differs.int().argmax()))


def divergence_of_heads(path: ModulePath, actual: Tensor, expected: Tensor, tolerance: float) -> DivergencePoint | None:
    """Return the first head and position of one attention context, `[head, time, d_head]`, that differs."""
    return _divergence_of_step(path, "context", actual, expected, tolerance)


def _divergence_of_step(
    path: ModulePath, step: str, actual: Tensor, expected: Tensor, tolerance: float
) -> DivergencePoint | None:
    if actual.shape != expected.shape:
        return DivergencePoint(path.stack, path.layer, path.part, step, None, 0)
    differs = relative_error(actual, expected).amax(dim=-1) > tolerance
    if not bool(differs.any()):
        return None
    if step not in HEAD_STEPS:
        return DivergencePoint(path.stack, path.layer, path.part, step, None, int(differs.int().argmax()))
    position = int(differs.any(dim=0).int().argmax())
    head = int(differs[:, position].int().argmax())
    return DivergencePoint(path.stack, path.layer, path.part, step, head, position)


def max_relative_error(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, int]:
    """Return the largest error of several (actual, expected) pairs, and the index of that pair."""
    errors = [
        float(relative_error(actual, expected).max())
        if actual.shape == expected.shape and actual.numel()
        else torch.inf
        for actual, expected in pairs
    ]
    worst = max(range(len(errors)), key=errors.__getitem__)
    return errors[worst], worst
