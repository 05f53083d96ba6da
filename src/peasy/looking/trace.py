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

from peasy.looking.record import Looked
from peasy.models.protocol import Model
from peasy.nn.edit import Edit
from peasy.nn.tap import Seen, Tap


@dataclass(eq=False)
class TracedMemory:
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

    def fork(self) -> "TracedMemory":
        """Return an independent copy."""
        return TracedMemory(self.inner.fork(), self.ids)


@dataclass(frozen=True, eq=False)
class Glimpse:
    """Record of one decoding step: top tokens with log-probabilities, and the top attention of each layer."""

    best: tuple[tuple[int, float], ...]
    logs: Tensor
    looked: tuple[Looked, ...]
    computed: int
    reused: int


class Traced:
    """Wrapper with the model's interface that records the attention of the last token of every pass."""

    def __init__(
        self,
        model: Model,
        *,
        top: int | None = 8,
        candidates: int = 5,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        edit: Edit | None = None,
    ) -> None:
        self._model, self._edit = model, edit
        self.top, self.candidates, self.layers, self.heads = top, candidates, layers, heads
        self.seen: dict[tuple[int, ...], Glimpse] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def start(self, batch: int = 1, **more: Any) -> TracedMemory:
        """Return a new traced decode state."""
        return TracedMemory(self._model.start(batch, **more))

    def read(
        self, texts: Sequence[Sequence[int]], memories: Sequence[TracedMemory], *, every: bool = False, **_: Any
    ) -> list[Tensor]:
        """Run new tokens as the model does, and record the step."""
        captured: list[list[Seen]] = [[] for _ in texts]
        taps = [Tap(c.append, layers=self.layers, heads=self.heads, rows=[-1], stacks=["decoder"]) for c in captured]
        interventions = [self._edit] * len(texts)
        lengths = [state.length for state in memories]
        all_logits = self._model.read(
            texts, [state.inner for state in memories], every=every, tap=taps, edit=interventions
        )
        for ids, state, num_cached, logits, activations in zip(
            texts, memories, lengths, all_logits, captured, strict=True
        ):
            state.ids += tuple(ids)
            last = logits[-1] if every else logits
            self.seen[state.ids] = self._glimpse(last, activations, len(ids), num_cached)
        return all_logits

    def _glimpse(self, scores: Tensor, seen: list[Seen], computed: int, reused: int) -> Glimpse:
        logprobs = torch.log_softmax(scores.float(), dim=-1).cpu()
        best = logprobs.topk(min(self.candidates, len(logprobs)))
        pairs = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        attention = tuple(self._looked(activation, computed + reused) for activation in seen)
        return Glimpse(pairs, logprobs, attention, computed, reused)

    def _looked(self, seen: Seen, length: int) -> Looked:
        weights = seen.array[0, :, -1].float()
        first = (
            length - weights.shape[-1] if seen.place.part == "attention" else 0
        )  # a sliding window has evicted earlier keys
        best = weights.topk(weights.shape[-1] if self.top is None else min(self.top, weights.shape[-1]))
        return Looked(seen.place, (best.indices + first).cpu().numpy(), best.values.cpu().numpy().astype(np.float32))
