"""What all layers of one pass share: who may look where, the cache, the tap. Made at the top, handed down."""

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
    """One pass of one stack. `source` is what cross-attention looks at, with a sight of its own.

    With `texts`, those stand side by side in one row, `[1, all their new tokens, width]`: every token is computed for
    itself, and looks, remembers, is watched and edited in the scene of its own text.
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
        self.sizes = [text.sight.query.shape[1] for text in self.texts]  # how many new tokens each text has
        # Asked many times in every step of decoding, where nobody looks.
        self.watched = any(text.tap is not None for text in self.texts)
        self.edited = any(text.edit is not None for text in self.texts)

    def show(self, place: Place, step: str, array: Tensor) -> None:
        """Hand a step of the stream, `[batch, time, width]`, to whoever asked for it."""
        if not self.texts:
            show(self.tap, place, step, array)
        elif self.watched:
            for text, own in zip(self.texts, array.split(self.sizes, dim=1), strict=True):
                show(text.tap, place, step, own)

    def hand_on(self, place: Place, step: str, array: Tensor) -> Tensor:
        """A step of the stream as it goes on: changed where somebody edits it, and shown as it then is."""
        if not self.texts:
            array = edit_stream(self.edit, place, step, array, self.sight.query)
        elif self.edited:
            own = zip(self.texts, array.split(self.sizes, dim=1), strict=True)
            array = torch.cat([edit_stream(t.edit, place, step, new, t.sight.query) for t, new in own], dim=1)
        self.show(place, step, array)
        return array
