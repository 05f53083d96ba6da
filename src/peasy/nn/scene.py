"""What all layers of one pass share: who may look where, the cache, the tap. Made at the top, handed down."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from peasy.nn.cache import Cache
from peasy.nn.position import Turn
from peasy.nn.sight import Sight
from peasy.nn.tap import Place, Tap, show

Edit = Callable[[Place, Tensor], Tensor]
"""Changes the context of an attention, `[batch, head, query, d_value]`, before its heads are joined."""


@dataclass(eq=False)
class Scene:
    """One pass of one stack. `source` is what cross-attention looks at, with a sight of its own."""

    sight: Sight
    cache: Cache | None = None
    tap: Tap | None = None
    edit: Edit | None = None
    source: Tensor | None = None
    source_sight: Sight | None = None
    turn: Turn | None = None

    def show(self, place: Place, step: str, array: Tensor) -> None:
        """Hand a step of the stream, `[batch, time, width]`, to whoever asked for it."""
        show(self.tap, place, step, array)
