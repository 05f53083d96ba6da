"""Forward context shared by all layers: mask, KV cache, tap, intervention."""

from dataclasses import dataclass

import torch
from torch import Tensor

from peasy.nn.cache import Cache
from peasy.nn.edit import Edit, edit_stream
from peasy.nn.position import Turn
from peasy.nn.sight import Sight
from peasy.nn.tap import Place, Tap, show


@dataclass(eq=False)
class Scene:
    """Context of one forward pass of one stack. `encoder_output` is for cross-attention.

    With `sequences`, a packed batch without padding, `[1, all new tokens, width]`: attention, KV cache, tap and
    intervention use the context of each sequence.
    """

    sight: Sight
    cache: Cache | None = None
    tap: Tap | None = None
    edit: Edit | None = None
    source: Tensor | None = None
    source_sight: Sight | None = None
    turn: Turn | None = None
    texts: tuple["Scene", ...] = ()

    def __post_init__(self) -> None:
        self.sizes = [text.sight.query.shape[1] for text in self.texts]  # new tokens of each sequence
        # Precomputed: read many times in every decoding step.
        self.watched = any(text.tap is not None for text in self.texts)
        self.edited = any(text.edit is not None for text in self.texts)

    def show(self, place: Place, step: str, array: Tensor) -> None:
        """Pass a step `[batch, time, width]` to the taps, if it is to be captured."""
        if not self.texts:
            show(self.tap, place, step, array)
        elif self.watched:
            for sequence, values in zip(self.texts, array.split(self.sizes, dim=1), strict=True):
                show(sequence.tap, place, step, values)

    def hand_on(self, place: Place, step: str, array: Tensor) -> Tensor:
        """Apply the interventions to a step, pass the result to the taps, and return it."""
        if not self.texts:
            array = edit_stream(self.edit, place, step, array, self.sight.query)
        elif self.edited:
            pairs = zip(self.texts, array.split(self.sizes, dim=1), strict=True)
            array = torch.cat([edit_stream(s.edit, place, step, values, s.sight.query) for s, values in pairs], dim=1)
        self.show(place, step, array)
        return array
