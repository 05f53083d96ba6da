"""Compares the context of the fused attention kernel with the formula's weights times the values."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.additive import AdditiveAttention
from peasy.nn.attention import Attention
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Activation, Tap
from peasy.verification.divergence import divergence_of_heads
from peasy.verification.paths import ExecutionPath, StepRecorder, TokenSequence, chunked, padded_batch, uncached
from peasy.verification.tolerance import relative_error
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, DivergencePoint, Equality

EQUALITY_NAME, DESCRIPTION = (
    "fused = formula",
    "the kernel's context against the formula's weights times the values, head by head",
)


class _KernelComparison(StepRecorder):
    """Recorder that compares at every attention layer; keeps the largest error and the first divergence."""

    tolerance: float = 0.0
    distance: float = 0.0
    divergence: DivergencePoint | None = None
    num_compared: int = 0

    def make_tap(
        self, row: int = 0, num_new_tokens: int | None = None, padding_masks: Mapping[str, Tensor | None] | None = None
    ) -> Tap:
        """Return a tap on the formula's inputs and the kernel's output."""
        self.row = row
        self.captured: dict[str, Tensor] = {}
        return Tap(self._record, steps=("value", "weights", "context"), parts=("attention", "cross_attention"))

    def _record(self, activation: Activation) -> None:
        self.captured[activation.step] = activation.array
        if activation.step == "context":
            self._compare(activation.path, self.captured["weights"], self.captured["value"], activation.array)
            self.captured = {}

    def _compare(self, path: ModulePath, weights: Tensor, value: Tensor, context: Tensor) -> None:
        wide = torch.promote_types(context.dtype, torch.float32)
        expected = weights.to(wide) @ value.to(wide).nan_to_num(0.0)
        self.num_compared += 1
        self.distance = max(self.distance, float(relative_error(context, expected).max()))
        for row in range(len(context)):
            self.divergence = self.divergence or divergence_of_heads(path, context[row], expected[row], self.tolerance)


def compare_fused(model: Model, sequences: Sequence[TokenSequence], tolerance: float) -> Equality:
    """Compare every attention layer on each sequence alone, in a padded batch, and in chunks if there is a cache."""
    modules = list(model.modules())
    attentions = [module for module in modules if isinstance(module, Attention)]
    if not attentions:
        additive = any(isinstance(module, AdditiveAttention) for module in modules)
        reason = (
            "Its attention is computed by the formula: there is no fused kernel."
            if additive
            else "It has no attention."
        )
        return Equality(EQUALITY_NAME, DESCRIPTION, NOT_APPLICABLE, reason=reason)
    paths: list[ExecutionPath] = [uncached, padded_batch]
    paths += [chunked] if any(attention.path.stack == "decoder" for attention in attentions) else []
    comparisons = [
        _compare_sequence(model, sequences, index, path, tolerance) for path in paths for index in range(len(sequences))
    ]
    worst = max(comparisons, key=lambda comparison: comparison.distance)
    if worst.distance <= tolerance:
        metrics = {"num_compared": sum(comparison.num_compared for comparison in comparisons)}
        return Equality(EQUALITY_NAME, DESCRIPTION, HOLDS, worst.distance, tolerance, metrics=metrics)
    return Equality(
        EQUALITY_NAME, DESCRIPTION, FAILS, worst.distance, tolerance, divergence=worst.divergence, sequence=worst.index
    )


def _compare_sequence(
    model: Model, sequences: Sequence[TokenSequence], index: int, execution_path: ExecutionPath, tolerance: float
) -> _KernelComparison:
    comparison = _KernelComparison(index)
    comparison.tolerance = tolerance
    execution_path(model, sequences, comparison)
    return comparison
