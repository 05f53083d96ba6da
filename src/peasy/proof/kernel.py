"""Compares the context of the fused attention kernel with the formula's weights times the values."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.additive import AdditiveAttention
from peasy.nn.attention import Attention
from peasy.nn.place import Place
from peasy.nn.tap import Seen, Tap
from peasy.proof.parting import of_heads
from peasy.proof.road import Road, Text, Watch, alone, in_a_batch, in_chunks
from peasy.proof.tolerance import apart
from peasy.proof.verdict import ABSENT, FAILS, HOLDS, Equality, Where

NAME, SAYS = "fused = formula", "the kernel's context against the formula's weights times the values, head by head"


class _Pairs(Watch):
    """Recorder that compares at every attention layer; keeps the largest error and the first divergence."""

    tolerance: float = 0.0
    distance: float = 0.0
    where: Where | None = None
    compared: int = 0

    def tap(self, row: int = 0, new: int | None = None, shown: Mapping[str, Tensor | None] | None = None) -> Tap:
        """Return a tap on the formula's inputs and the kernel's output."""
        self.row = row
        self.held: dict[str, Tensor] = {}
        return Tap(self._take, steps=("value", "weights", "context"), parts=("attention", "cross_attention"))

    def _take(self, seen: Seen) -> None:
        self.held[seen.step] = seen.array
        if seen.step == "context":
            self._compare(seen.place, self.held["weights"], self.held["value"], seen.array)
            self.held = {}

    def _compare(self, place: Place, weights: Tensor, value: Tensor, context: Tensor) -> None:
        wide = torch.promote_types(context.dtype, torch.float32)
        expected = weights.to(wide) @ value.to(wide).nan_to_num(0.0)
        self.compared += 1
        self.distance = max(self.distance, float(apart(context, expected).max()))
        for row in range(len(context)):
            self.where = self.where or of_heads(place, context[row], expected[row], self.tolerance)


def compare_kernels(model: Model, texts: Sequence[Text], tolerance: float) -> Equality:
    """Compare every attention layer on each sequence alone, in a padded batch, and in chunks if there is a cache."""
    modules = list(model.modules())
    attentions = [module for module in modules if isinstance(module, Attention)]
    if not attentions:
        additive = any(isinstance(module, AdditiveAttention) for module in modules)
        why = (
            "Its attention is computed by the formula: there is no fused kernel."
            if additive
            else "It has no attention."
        )
        return Equality(NAME, SAYS, ABSENT, why=why)
    paths: list[Road] = [alone, in_a_batch]
    paths += [in_chunks] if any(attention.place.stack == "decoder" for attention in attentions) else []
    comparisons = [_watched(model, texts, index, path, tolerance) for path in paths for index in range(len(texts))]
    worst = max(comparisons, key=lambda comparison: comparison.distance)
    if worst.distance <= tolerance:
        measures = {"compared": sum(comparison.compared for comparison in comparisons)}
        return Equality(NAME, SAYS, HOLDS, worst.distance, tolerance, measures=measures)
    return Equality(NAME, SAYS, FAILS, worst.distance, tolerance, where=worst.where, text=worst.index)


def _watched(model: Model, texts: Sequence[Text], index: int, way: Road, tolerance: float) -> _Pairs:
    comparison = _Pairs(index)
    comparison.tolerance = tolerance
    way(model, texts, comparison)
    return comparison
