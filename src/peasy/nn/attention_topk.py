"""Top-k attention of the newest token: the keys with the largest weights, per layer and head, collected by a tap."""

from collections.abc import Iterable

import torch

from peasy.nn.module_path import LayerTopK
from peasy.nn.tap import Activation, Tap


class AttentionTopK:
    """Tap on the decoder that keeps the top weights of a sequence's newest token (`top_k` None = all), pass by pass."""

    def __init__(
        self, top_k: int | None = 8, layers: Iterable[int] | None = None, heads: Iterable[int] | None = None
    ) -> None:
        self.top_k, self._activations = top_k, list[Activation]()
        self.tap = Tap(self._activations.append, layers=layers, heads=heads, rows=[-1], stacks=["decoder"])

    def pop(self, length: int) -> tuple[LayerTopK, ...]:
        """Return and clear the weights of the last pass, which ended at `length` tokens."""
        layers = tuple(self._top_keys(activation, length) for activation in self._activations)
        self._activations.clear()
        return layers

    def _top_keys(self, activation: Activation, length: int) -> LayerTopK:
        weights = activation.array[0, :, -1]
        # A sliding window has evicted earlier keys.
        first = length - weights.shape[-1] if activation.path.part == "attention" else 0
        top = weights.topk(weights.shape[-1] if self.top_k is None else min(self.top_k, weights.shape[-1]))
        values = top.values.to(torch.promote_types(top.values.dtype, torch.float32))  # NumPy has no bfloat16
        return LayerTopK(
            activation.path, (top.indices + first).cpu().numpy(), values.cpu().numpy(), activation.heads or ()
        )
