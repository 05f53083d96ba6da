"""Tap: captures activations of a forward pass and passes them to a callback.

A tap is an argument of the model, not a hook. It never changes the model's output, bit for bit.
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
"""Steps inside the fused kernel: recomputed by the formula, only for the requested rows and heads."""

HEAD_STEPS = ("query", "key", "value", *FORMULA_STEPS, "context")
"""Steps inside attention, `[batch, head, ...]`, named as in the formula."""

STREAM_STEPS = ("residual", "normed", "activation", "output", "final", "logits")
"""Steps outside attention, `[batch, time, width]`.

residual: residual stream before each block and after the last one · normed: input of a sublayer ·
activation: hidden layer of the MLP · output: output of a sublayer · final: after the last norm · logits.
"""

KNOWN_STEPS = (*HEAD_STEPS, *STREAM_STEPS)


@dataclass(frozen=True, eq=False)
class Seen:
    """Captured activation: one step of one module, for these `heads` and `rows` (None = all).

    `caption` comes from the formula, if the step is one of its steps.
    """

    place: Place
    step: str
    array: Tensor
    heads: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    caption: Step | None = None


class Tap:
    """Selects which activations are captured, and the callback that receives them while the model runs.

    None = all. `rows` are queries of this pass, -1 is the last. `parts` are attention, cross_attention,
    feedforward, stream. With `rows_per_block`, attention steps arrive in blocks of that many rows. `on_attention`
    receives the attention inputs (queries, keys, values and mask) instead of computed steps.

    >>> activations = []
    >>> Tap(activations.append, layers=[2], heads=[0, 3], steps=["weights"]).wants(Place("decoder", 2, "attention"))
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
            raise InvalidInput(f'Unknown step "{step}".', hint=hint)

    def wants(self, place: Place, step: str | None = None) -> bool:
        """Return True if this module, or this step of it, is to be captured."""
        filters = ((place.layer, self.layers), (place.part, self.parts), (place.stack, self.stacks))
        return all(wanted is None or value in wanted for value, wanted in filters) and (
            step is None or step in self.steps
        )

    def heads_of(self, count: int) -> tuple[int, ...]:
        """Return the requested heads as indices from 0 to `count` - 1."""
        return _within(self.heads, count, "head")

    def rows_of(self, count: int) -> tuple[int, ...]:
        """Return the requested query rows as indices from 0 to `count` - 1."""
        return _within(self.rows, count, "row")


def _within(asked: tuple[int, ...] | None, count: int, what: str) -> tuple[int, ...]:
    if asked is None:
        return tuple(range(count))
    for index in asked:
        if not -count <= index < count:
            raise InvalidInput(f"There is no {what} {index}.", hint=f"Valid values are 0 to {count - 1}.")
    return tuple(index % count for index in asked)


def show(tap: Tap | None, place: Place, step: str, array: Tensor) -> None:
    """Pass a step `[batch, time, width]` to the tap, if it is to be captured."""
    if tap is None or not tap.wants(place, step):
        return
    if tap.rows is None:
        tap.hand(Seen(place, step, array))
    else:
        rows = tap.rows_of(array.shape[1])
        tap.hand(Seen(place, step, array[:, list(rows)], rows=rows))
