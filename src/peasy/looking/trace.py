"""A model that is watched while somebody else writes with it: greedy, by chance or with beams, through the cache.

Nothing is computed again: what a head looked at is taken from the very pass that chose the token. What was seen is
kept by the tokens that were read before, so that any text that came out can be followed back, token by token.
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
    """A memory that knows which tokens it has read."""

    inner: Any
    ids: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.inner.length

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        self.inner.crop(length)
        self.ids = self.ids[:length]

    def fork(self) -> "TracedMemory":
        """The same memory once more, which goes its own way from here."""
        return TracedMemory(self.inner.fork(), self.ids)


@dataclass(frozen=True, eq=False)
class Glimpse:
    """What was seen when the token after some ids was chosen: log probabilities of the best, and where heads looked."""

    best: tuple[tuple[int, float], ...]
    logs: Tensor
    looked: tuple[Looked, ...]
    computed: int
    reused: int


class Traced:
    """Passes everything on to the model, and keeps of every pass what its last token looked at."""

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
        """An empty memory, which will know what it has read."""
        return TracedMemory(self._model.start(batch, **more))

    def read(
        self, texts: Sequence[Sequence[int]], memories: Sequence[TracedMemory], *, every: bool = False, **_: Any
    ) -> list[Tensor]:
        """Read new tokens as the model does, and look."""
        collected: list[list[Seen]] = [[] for _ in texts]
        taps = [Tap(s.append, layers=self.layers, heads=self.heads, rows=[-1], stacks=["decoder"]) for s in collected]
        edits = [self._edit] * len(texts)
        before = [memory.length for memory in memories]
        found = self._model.read(texts, [m.inner for m in memories], every=every, tap=taps, edit=edits)
        for ids, memory, reused, scores, seen in zip(texts, memories, before, found, collected, strict=True):
            memory.ids += tuple(ids)
            last = scores[-1] if every else scores
            self.seen[memory.ids] = self._glimpse(last, seen, len(ids), reused)
        return found

    def _glimpse(self, scores: Tensor, seen: list[Seen], computed: int, reused: int) -> Glimpse:
        logs = torch.log_softmax(scores.float(), dim=-1).cpu()
        best = logs.topk(min(self.candidates, len(logs)))
        pairs = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        return Glimpse(pairs, logs, tuple(self._looked(one, computed + reused) for one in seen), computed, reused)

    def _looked(self, seen: Seen, length: int) -> Looked:
        weights = seen.array[0, :, -1].float()
        first = length - weights.shape[-1] if seen.place.part == "attention" else 0  # a window drops earlier keys
        best = weights.topk(weights.shape[-1] if self.top is None else min(self.top, weights.shape[-1]))
        return Looked(seen.place, (best.indices + first).cpu().numpy(), best.values.cpu().numpy().astype(np.float32))
