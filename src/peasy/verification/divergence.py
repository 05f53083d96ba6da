"""Divergence of two execution paths: tolerances per dtype, and the first layer, head and position that differ."""

from collections.abc import Sequence

import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.models.protocol import Model
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import HEAD_STEPS
from peasy.verification.paths import ExecutionPath, StepRecorder, TokenSequence, uncached
from peasy.verification.verdict import DivergencePoint

_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Relative to the largest value. In a deep model, different summation orders differ by a few hundred roundings."""

INT8_TOLERANCE = 0.10
"""Tolerance for int8 weights: RMS error over RMS of the logits. Random models, whose logits are small sums of large
terms, had up to 0.04."""


def tolerance_for(dtype: torch.dtype) -> float:
    """Return the relative tolerance for results of this dtype."""
    if dtype not in _TOLERANCES:
        raise InvalidInput(f"There is no tolerance for {dtype}.", hint="Load the model in float32 or bfloat16.")
    return _TOLERANCES[dtype]


def relative_error(actual: Tensor, expected: Tensor) -> Tensor:
    """Return the elementwise error relative to the largest expected value (at least 1); NaN counts as infinite.

    >>> relative_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0])).tolist()
    [0.0, 0.5]
    """
    actual, expected = actual.detach().double(), expected.detach().double()
    size = expected[expected.isfinite()].abs().max() if bool(expected.isfinite().any()) else expected.new_ones(())
    difference = torch.where(actual == expected, 0.0, (actual - expected).abs() / size.clamp(min=1.0))
    return difference.nan_to_num(nan=torch.inf)


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
        point = divergence_of_step(path, step, actual_values, expected_values, tolerance)
        if point is not None:
            return point
    return None


def divergence_of_logits(actual: Tensor, expected: Tensor, tolerance: float) -> DivergencePoint:
    """Return the first token whose logits differ, if no inner step does."""
    if actual.shape != expected.shape:
        return DivergencePoint("logits", None, "", "logits", None, 0)
    differs = relative_error(actual, expected).flatten(1).amax(dim=1) > tolerance
    return DivergencePoint("logits", None, "", "logits", None, int(differs.int().argmax()))


def divergence_of_step(
    path: ModulePath, step: str, actual: Tensor, expected: Tensor, tolerance: float
) -> DivergencePoint | None:
    """Return the first position, and head if the step has heads, of one step that differs; None if none does."""
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
