"""The recorder: keeps what a tap hands it, as NumPy arrays in the dtype that fits, and nothing else."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from peasy.looking.question import Question
from peasy.looking.record import Capture
from peasy.nn.place import Place
from peasy.nn.tap import FORMULA_STEPS, Seen, Tap
from peasy.nn.watch import Look

BLOCK = 256
"""So many rows are handed over at a time: beside what is kept, only they are held in full precision."""


class Recorder:
    """Keeps the asked steps of one text (the first of a batch).

    With weights it also keeps how long each key's value is, so that contributions can be shown wherever weights are.
    """

    def __init__(self, question: Question, storage: str = "float32") -> None:
        self.question, self.storage = question, storage
        self._dtype = torch.float16 if storage == "float16" else torch.float32
        self._kept: dict[tuple[Place, str], tuple[Tensor, Seen]] = {}
        self._filled: dict[tuple[Place, str], tuple[int, ...]] = {}
        self._sizes: dict[Place, np.ndarray] = {}

    def tap(self, examine: Callable[[Place, Look], object] | None = None) -> Tap:
        """The tap that asks for it; `examine` may look at the attentions themselves in the same pass."""
        asked = self.question
        steps = {*asked.steps, "value"} if "weights" in asked.steps else set(asked.steps)
        return Tap(
            self.hand, steps=steps, layers=asked.layers, heads=asked.heads, rows=asked.rows,
            parts=asked.parts, stacks=asked.stacks, block=BLOCK, examine=examine,
        )  # fmt: skip

    def hand(self, seen: Seen) -> None:
        """Take one piece; pieces of tall steps come one below the other."""
        array = seen.array[0].detach()
        if seen.step == "value" and "weights" in self.question.steps:
            self._sizes[seen.place] = array.float().norm(dim=-1).cpu().numpy()
        if seen.step not in self.question.steps:
            return
        key = (seen.place, seen.step)
        if seen.step not in FORMULA_STEPS:
            self._kept[key] = (array.to(self._dtype, copy=True), seen)
            return
        if key not in self._kept:
            self._kept[key] = (torch.empty(len(array), self._tall(seen), array.shape[-1], dtype=self._dtype), seen)
            self._filled[key] = ()
        done, rows = len(self._filled[key]), tuple(seen.rows or ())
        self._kept[key][0][:, done : done + array.shape[1]].copy_(array)
        self._filled[key] += rows or tuple(range(done, done + array.shape[1]))

    def _tall(self, seen: Seen) -> int:
        return self._lengths[seen.place.stack] if self.question.rows is None else len(self.question.rows)

    def expect(self, lengths: dict[str, int]) -> None:
        """How many tokens each stack will read: the arrays are made once, in their full size."""
        self._lengths = lengths

    def captures(self) -> tuple[Capture, ...]:
        """All that was kept, in the order in which the text met it."""
        return tuple(self._capture(place, step, kept, seen) for (place, step), (kept, seen) in self._kept.items())

    def _capture(self, place: Place, step: str, kept: Tensor, seen: Seen) -> Capture:
        rows = self._filled.get((place, step), seen.rows)
        if rows is None and step not in ("key", "value"):
            rows = tuple(range(kept.shape[-2]))
        sizes = self._sizes.get(place) if step == "weights" else None
        return Capture(place, step, kept.cpu().numpy(), tuple(seen.heads or ()), rows, sizes, seen.caption)
