"""Fused = formula: what the kernel gives, against the weights of the formula times the values."""

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

NAME, SAYS = "fused = formula", "the kernel's context, and the formula's weights times the values, head by head"


class _Pairs(Watch):
    """Compares at every attention, as it happens; keeps the largest distance and the first place that is too far."""

    tolerance: float = 0.0
    distance: float = 0.0
    where: Where | None = None
    compared: int = 0

    def tap(self, row: int = 0, new: int | None = None, shown: Mapping[str, Tensor | None] | None = None) -> Tap:
        """A tap on what the formula needs and what the kernel gave."""
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
        right = weights.to(wide) @ value.to(wide).nan_to_num(0.0)
        self.compared += 1
        self.distance = max(self.distance, float(apart(context, right).max()))
        for row in range(len(context)):
            self.where = self.where or of_heads(place, context[row], right[row], self.tolerance)


def compare_kernels(model: Model, texts: Sequence[Text], tolerance: float) -> Equality:
    """Every attention of the model, on each text alone, in a padded batch, and in pieces where there is a cache."""
    modules = list(model.modules())
    if not any(isinstance(each, Attention) for each in modules):
        own = any(isinstance(each, AdditiveAttention) for each in modules)
        why = (
            "Its attention is calculated by the formula itself: there is no kernel." if own else "It has no attention."
        )
        return Equality(NAME, SAYS, ABSENT, why=why)
    ways: list[Road] = [alone, in_a_batch]
    ways += [in_chunks] if any(each.place.stack == "decoder" for each in modules if isinstance(each, Attention)) else []
    pairs = [_watched(model, texts, index, way, tolerance) for way in ways for index in range(len(texts))]
    worst = max(pairs, key=lambda pair: pair.distance)
    if worst.distance <= tolerance:
        return Equality(
            NAME, SAYS, HOLDS, worst.distance, tolerance, measures={"compared": sum(p.compared for p in pairs)}
        )
    return Equality(NAME, SAYS, FAILS, worst.distance, tolerance, where=worst.where, text=worst.index)


def _watched(model: Model, texts: Sequence[Text], index: int, way: Road, tolerance: float) -> _Pairs:
    pairs = _Pairs(index)
    pairs.tolerance = tolerance
    way(model, texts, pairs)
    return pairs
