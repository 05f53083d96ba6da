"""Recorder: stores the activations of a tap as NumPy arrays in the chosen dtype."""

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
"""Rows per callback: besides the stored arrays, only these are held in full precision."""


class Recorder:
    """Stores the captured steps of one sequence (the first of a batch), with its length in each stack.

    Arrays are allocated once, in full size. With weights it also stores the norm of each key's value vector, so that
    value-weighted attention can be shown.
    """

    def __init__(self, question: Question, lengths: Mapping[str, int], storage: str = "float32") -> None:
        self.question, self.lengths = question, lengths
        self._dtype = torch.float16 if storage == "float16" else torch.float32
        self._kept: dict[tuple[Place, str], Seen] = {}
        self._sizes: dict[Place, np.ndarray] = {}

    def tap(self, examine: Callable[[Place, Look], object] | None = None) -> Tap:
        """Return the tap for this spec; `on_attention` also receives the attention inputs of the same pass."""
        spec = self.question
        steps = {*spec.steps, "value"} if "weights" in spec.steps else set(spec.steps)
        return Tap(
            self.hand, steps=steps, layers=spec.layers, heads=spec.heads, rows=spec.rows,
            parts=spec.parts, stacks=spec.stacks, block=BLOCK, examine=examine,
        )  # fmt: skip

    def hand(self, seen: Seen) -> None:
        """Store one activation; the [query, key] steps arrive in blocks of rows."""
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
            full = torch.empty(len(array), self._tall(seen.place), array.shape[-1], dtype=self._dtype)
            self._kept[key] = replace(seen, array=full, rows=())
        previous_rows, rows = self._kept[key].rows or (), seen.rows or ()
        self._kept[key].array[:, len(previous_rows) : len(previous_rows) + len(rows)].copy_(array)
        self._kept[key] = replace(self._kept[key], rows=(*previous_rows, *rows))

    def _tall(self, place: Place) -> int:
        return self.lengths[place.stack] if self.question.rows is None else len(self.question.rows)

    def captures(self) -> tuple[Capture, ...]:
        """Return all captures in execution order."""
        return tuple(self._capture(activation) for activation in self._kept.values())

    def _capture(self, seen: Seen) -> Capture:
        rows = seen.rows
        if rows is None and seen.step not in ("key", "value"):
            rows = tuple(range(seen.array.shape[-2]))
        norms = self._sizes.get(seen.place) if seen.step == "weights" else None
        return Capture(
            seen.place, seen.step, seen.array.cpu().numpy(), tuple(seen.heads or ()), rows, norms, seen.caption
        )
