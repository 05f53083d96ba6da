"""Generation tracing: a model wrapper that records attention and top tokens while any decoder runs it.

Nothing is computed twice: attention comes from the pass that produced the token. Records are keyed by the preceding
ids, so that any generated sequence (greedy, sampled or a beam) can be traced back token by token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from peasy.inspection.results import LayerTopK
from peasy.models.protocol import Model
from peasy.nn.intervention import InterventionLike
from peasy.nn.tap import Activation, Tap


@dataclass(eq=False)
class TracedState:
    """Decode state that also stores the ids it was computed from."""

    inner: Any
    ids: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Number of computed tokens."""
        return self.inner.length

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        self.inner.crop(length)
        self.ids = self.ids[:length]

    def fork(self) -> "TracedState":
        """Return an independent copy."""
        return TracedState(self.inner.fork(), self.ids)


@dataclass(frozen=True, eq=False)
class StepTrace:
    """Record of one decoding step: top tokens with log-probabilities, and the top attention of each layer."""

    top_logprobs: tuple[tuple[int, float], ...]
    logprobs: Tensor
    attention: tuple[LayerTopK, ...]
    num_computed: int
    num_cached: int


class TracingModel:
    """Wrapper with the model's interface that records the attention of the last token of every pass."""

    def __init__(
        self,
        model: Model,
        *,
        top_keys: int | None = 8,
        top_tokens: int = 5,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        intervention: InterventionLike | None = None,
    ) -> None:
        self._model, self._intervention = model, intervention
        self.top_keys, self.top_tokens, self.layers, self.heads = top_keys, top_tokens, layers, heads
        self.steps: dict[tuple[int, ...], StepTrace] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def new_state(self, batch: int = 1, **more: Any) -> TracedState:
        """Return a new traced decode state."""
        return TracedState(self._model.new_state(batch, **more))

    def forward_varlen(
        self,
        sequences: Sequence[Sequence[int]],
        states: Sequence[TracedState],
        *,
        all_positions: bool = False,
        **_: Any,
    ) -> list[Tensor]:
        """Run new tokens as the model does, and record the step."""
        captured: list[list[Activation]] = [[] for _ in sequences]
        taps = [Tap(c.append, layers=self.layers, heads=self.heads, rows=[-1], stacks=["decoder"]) for c in captured]
        interventions = [self._intervention] * len(sequences)
        lengths = [state.length for state in states]
        all_logits = self._model.forward_varlen(
            sequences,
            [state.inner for state in states],
            all_positions=all_positions,
            tap=taps,
            intervention=interventions,
        )
        for ids, state, num_cached, logits, activations in zip(
            sequences, states, lengths, all_logits, captured, strict=True
        ):
            state.ids += tuple(ids)
            last = logits[-1] if all_positions else logits
            self.steps[state.ids] = self._step_trace(last, activations, len(ids), num_cached)
        return all_logits

    def _step_trace(
        self, logits: Tensor, activations: list[Activation], num_computed: int, num_cached: int
    ) -> StepTrace:
        logprobs = torch.log_softmax(logits.float(), dim=-1).cpu()
        best = logprobs.topk(min(self.top_tokens, len(logprobs)))
        pairs = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        attention = tuple(self._layer_topk(activation, num_computed + num_cached) for activation in activations)
        return StepTrace(pairs, logprobs, attention, num_computed, num_cached)

    def _layer_topk(self, activation: Activation, length: int) -> LayerTopK:
        weights = activation.array[0, :, -1].float()
        # A sliding window has evicted earlier keys.
        first = length - weights.shape[-1] if activation.path.part == "attention" else 0
        best = weights.topk(weights.shape[-1] if self.top_keys is None else min(self.top_keys, weights.shape[-1]))
        return LayerTopK(
            activation.path, (best.indices + first).cpu().numpy(), best.values.cpu().numpy().astype(np.float32)
        )
