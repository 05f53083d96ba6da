"""The recorder: keeps what a tap hands it, as NumPy arrays in the dtype that fits, and nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch

from peasy.looking.question import Question
from peasy.looking.record import Capture
from peasy.nn.place import Place
from peasy.nn.tap import FORMULA_STEPS, Seen, Tap
from peasy.nn.watch import Look

BLOCK = 256
"""So many rows are handed over at a time: beside what is kept, only they are held in full precision."""


class Recorder:
    """Keeps the asked steps of one text (the first of a batch), which has so many tokens in each stack.

    Arrays are made once, in their full size; no piece is held beside them. With weights it also keeps how long each
    key's value is, so that contributions can be shown wherever weights are.
    """

    def __init__(self, question: Question, lengths: Mapping[str, int], storage: str = "float32") -> None:
        self.question, self.lengths = question, lengths
        self._dtype = torch.float16 if storage == "float16" else torch.float32
        self._kept: dict[tuple[Place, str], Seen] = {}
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
            self._kept[key] = replace(seen, array=array.to(self._dtype, copy=True))
            return
        if key not in self._kept:
            kept = torch.empty(len(array), self._tall(seen.place), array.shape[-1], dtype=self._dtype)
            self._kept[key] = replace(seen, array=kept, rows=())
        before, rows = self._kept[key].rows or (), seen.rows or ()
        self._kept[key].array[:, len(before) : len(before) + len(rows)].copy_(array)
        self._kept[key] = replace(self._kept[key], rows=(*before, *rows))

    def _tall(self, place: Place) -> int:
        return self.lengths[place.stack] if self.question.rows is None else len(self.question.rows)

    def captures(self) -> tuple[Capture, ...]:
        """All that was kept, in the order in which the text met it."""
        return tuple(self._capture(seen) for seen in self._kept.values())

    def _capture(self, seen: Seen) -> Capture:
        rows = seen.rows
        if rows is None and seen.step not in ("key", "value"):
            rows = tuple(range(seen.array.shape[-2]))
        sizes = self._sizes.get(seen.place) if seen.step == "weights" else None
        return Capture(
            seen.place, seen.step, seen.array.cpu().numpy(), tuple(seen.heads or ()), rows, sizes, seen.caption
        )
