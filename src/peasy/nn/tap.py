"""The tap: who watches a pass through the model, what they ask for, and where it is handed.

Looking is an argument. Without a tap nothing here runs; with one, the model's own numbers stay the same bits.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from peasy.errors import InvalidInput, did_you_mean
from peasy.formula import Step
from peasy.nn.place import Place

if TYPE_CHECKING:
    from peasy.nn.watch import Look

FORMULA_STEPS = ("scores", "scaled", "masked", "weights")
"""Steps that the fused kernel never shows: the formula computes them, for the asked rows and heads only."""

HEAD_STEPS = ("query", "key", "value", *FORMULA_STEPS, "context")
"""Steps inside attention, `[batch, head, ...]`; named as in the formula."""

STREAM_STEPS = ("residual", "normed", "activation", "output", "final", "logits")
"""Steps outside attention, `[batch, time, width]`.

residual: what enters a block, and after the last one what leaves it · normed: what a sublayer reads ·
activation: inside the feed-forward · output: what a sublayer adds · final: the stream after the last norm · logits.
"""

KNOWN_STEPS = (*HEAD_STEPS, *STREAM_STEPS)


@dataclass(frozen=True, eq=False)
class Seen:
    """One step of one place, of these `heads` and `rows` (None = all); `caption` is the formula's, if it has one."""

    place: Place
    step: str
    array: Tensor
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    caption: Step | None = None


class Tap:
    """What somebody wants to see, and the callable that gets it, piece by piece, while the model runs.

    None = all of them. `rows` are queries of this pass, -1 is the last. `parts` are attention,
    cross_attention, feedforward, stream. With `block`, tall steps come in pieces of so many rows. `examine` gets the
    attention itself (queries, keys, values and who may look where), for those who can do without its steps.

    >>> seen = []
    >>> Tap(seen.append, layers=[2], heads=[0, 3], steps=["weights"]).wants(Place("decoder", 2, "attention"))
    True
    """

    def __init__(
        self,
        hand: Callable[[Seen], object],
        *,
        steps: Iterable[str] = ("weights",),
        layers: Iterable[int] | None = None,
        heads: Iterable[int] | None = None,
        rows: Iterable[int] | None = None,
        parts: Iterable[str] | None = None,
        stacks: Iterable[str] | None = None,
        block: int | None = None,
        examine: Callable[[Place, "Look"], object] | None = None,
    ) -> None:
        self.hand, self.examine = hand, examine
        self.steps = frozenset(steps)
        self.layers = None if layers is None else frozenset(layers)
        self.heads = None if heads is None else tuple(heads)
        self.rows = None if rows is None else tuple(rows)
        self.parts = None if parts is None else frozenset(parts)
        self.stacks = None if stacks is None else frozenset(stacks)
        self.block = block
        for step in self.steps - set(KNOWN_STEPS):
            hint = did_you_mean(step, KNOWN_STEPS) or f"Known: {', '.join(KNOWN_STEPS)}."
            raise InvalidInput(f'There is no step "{step}" to look at.', hint=hint)

    def wants(self, place: Place, step: str | None = None) -> bool:
        """Is this place, or this step of it, asked for?"""
        asked = ((place.layer, self.layers), (place.part, self.parts), (place.stack, self.stacks))
        return all(wanted is None or value in wanted for value, wanted in asked) and (
            step is None or step in self.steps
        )

    def heads_of(self, count: int) -> tuple[int, ...]:
        """The asked heads out of `count`."""
        return _within(self.heads, count, "head")

    def rows_of(self, count: int) -> tuple[int, ...]:
        """The asked query rows out of `count`."""
        return _within(self.rows, count, "row")


def _within(asked: tuple[int, ...] | None, count: int, what: str) -> tuple[int, ...]:
    if asked is None:
        return tuple(range(count))
    for index in asked:
        if not -count <= index < count:
            raise InvalidInput(f"There is no {what} {index}.", hint=f"Here they go from 0 to {count - 1}.")
    return tuple(index % count for index in asked)


def show(tap: Tap | None, place: Place, step: str, array: Tensor) -> None:
    """Hand a step of the stream, `[batch, time, width]`, to whoever asked for it."""
    if tap is None or not tap.wants(place, step):
        return
    if tap.rows is None:
        tap.hand(Seen(place, step, array))
    else:
        rows = tap.rows_of(array.shape[1])
        tap.hand(Seen(place, step, array[:, list(rows)], rows=rows))
