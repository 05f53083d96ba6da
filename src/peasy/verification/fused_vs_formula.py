"""Compares the context of the fused attention kernel with the formula's weights times the values."""

from collections.abc import Mapping

import torch
from torch import Tensor

from peasy.nn.attention import Attention
from peasy.nn.module_path import ModulePath
from peasy.nn.recurrent import AdditiveAttention
from peasy.nn.tap import Activation, Tap
from peasy.verification.divergence import divergence_of_step, relative_error
from peasy.verification.paths import ExecutionPath, ProofInputs, StepRecorder, chunked, padded_batch, uncached
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE, DivergencePoint, Equality

_NAME = "fused = formula"
_DESCRIPTION = "the kernel's context against the formula's weights times the values, head by head"


class _KernelComparison(StepRecorder):
    """Recorder that compares at every attention layer; keeps the largest error and the first divergence."""

    def __init__(self, index: int, tolerance: float) -> None:
        super().__init__(index)
        self.tolerance, self.distance, self.num_compared = tolerance, 0.0, 0
        self.divergence: DivergencePoint | None = None
        self.captured: dict[str, Tensor] = {}

    def make_tap(
        self, row: int = 0, num_new_tokens: int | None = None, padding_masks: Mapping[str, Tensor | None] | None = None
    ) -> Tap:
        """Return a tap on the formula's inputs and the kernel's output."""
        self.captured = {}
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
            self.divergence = self.divergence or divergence_of_step(
                path, "context", context[row], expected[row], self.tolerance
            )


def compare_fused(inputs: ProofInputs) -> Equality:
    """Compare every attention layer on each sequence alone, in a padded batch, and in chunks if there is a cache."""
    modules = list(inputs.model.modules())
    attentions = [module for module in modules if isinstance(module, Attention)]
    if not attentions:
        additive = any(isinstance(module, AdditiveAttention) for module in modules)
        computed = "Its attention is computed by the formula: there is no fused kernel."
        return Equality(_NAME, _DESCRIPTION, NOT_APPLICABLE, reason=computed if additive else "It has no attention.")
    paths: list[ExecutionPath] = [uncached, padded_batch]
    paths += [chunked] if any(attention.path.stack == "decoder" for attention in attentions) else []
    comparisons = []
    for path in paths:
        for index in range(len(inputs.sequences)):
            comparisons.append(_KernelComparison(index, inputs.tolerance))
            path(inputs.model, inputs.sequences, comparisons[-1])
    worst = max(comparisons, key=lambda comparison: comparison.distance)
    if worst.distance <= inputs.tolerance:
        metrics = {"num_compared": sum(comparison.num_compared for comparison in comparisons)}
        return Equality(_NAME, _DESCRIPTION, HOLDS, worst.distance, inputs.tolerance, metrics=metrics)
    where = worst.divergence, worst.index
    return Equality(_NAME, _DESCRIPTION, FAILS, worst.distance, inputs.tolerance, "", *where)
