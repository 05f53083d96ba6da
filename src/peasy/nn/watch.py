"""What a tap sees of one attention: what is at hand is handed over, what the kernel hides is calculated.

Only the asked rows and heads are calculated, by the formula, a few rows at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from peasy.formula import AttentionSteps, attend
from peasy.nn.sight import Visible
from peasy.nn.tap import FORMULA_STEPS, Place, Seen, Tap

BLOCK, CELLS = 64, 1 << 21
"""So many rows are calculated at a time, or fewer where so many cells are reached: the processor keeps them near."""

HIDDEN = {"masked": -torch.inf, "weights": 0.0}
"""What stands where nobody may look. Where only this is asked for, keys after a block's last row cost nothing."""


@dataclass(frozen=True, eq=False)
class Look:
    """One attention as it happened, but for its result: arrays are `[batch, head, time, d_head]`."""

    query: Tensor
    key: Tensor
    value: Tensor
    visible: Visible
    scale: float
    softcap: float | None = None

    def calculate(self) -> AttentionSteps:
        """Every step of it by the formula."""
        return attend(
            self.query, self.key, self.value,
            mask=self.visible.mask, bias=self.visible.bias, causal=self.visible.causal,
            scale=self.scale, softcap=self.softcap,
        )  # fmt: skip

    def pick(self, heads: tuple[int, ...], rows: tuple[int, ...]) -> "Look":
        """The same for some heads and query rows, each with the key head it shares."""
        shared = tuple(head * self.key.shape[1] // self.query.shape[1] for head in heads)
        return Look(
            pick(self.query, heads, rows), pick(self.key, shared), pick(self.value, shared),
            self.visible.pick(heads, rows, self.query), self.scale, self.softcap,
        )  # fmt: skip

    def block(self, rows: slice, n_key: int) -> "Look":
        """Some rows in a row and the first keys; one column of values is enough, since the context is known."""
        return Look(
            self.query[:, :, rows], self.key[:, :, :n_key], self.value[:, :, :n_key, :1],
            self.visible.block(rows, n_key, self.query), self.scale, self.softcap,
        )  # fmt: skip


def watch(tap: Tap, place: Place, look: Look, context: Tensor) -> None:
    """Hand over the asked steps of one attention."""
    if tap.examine is not None:
        tap.examine(place, look)
    heads, rows = tap.heads_of(look.query.shape[1]), tap.rows_of(look.query.shape[2])
    some = look.pick(heads, rows)
    at_hand = {"query": some.query, "key": some.key, "value": some.value}
    for step, array in at_hand.items():
        if step in tap.steps:
            tap.hand(Seen(place, step, array, heads, rows if step == "query" else None))
    asked = [step for step in FORMULA_STEPS if step in tap.steps]
    if asked:
        for piece in _cut(0, len(rows), tap.block or len(rows)):
            _hand_piece(tap, place, some, asked, heads, rows, piece)
    if "context" in tap.steps:
        tap.hand(Seen(place, "context", pick(context, heads, rows), heads, rows))


def pick(array: Tensor, heads: tuple[int, ...], rows: tuple[int, ...] | None = None) -> Tensor:
    """Some heads and rows of `[batch, head, time, width]`; all of them are not copied."""
    if heads != tuple(range(array.shape[1])):
        array = array[:, list(heads)]
    if rows is not None and rows != tuple(range(array.shape[2])):
        array = array[:, :, list(rows)]
    return array


def _hand_piece(
    tap: Tap, place: Place, look: Look, asked: list[str], heads: tuple[int, ...], rows: tuple[int, ...], piece: slice
) -> None:
    n_key, found, steps = look.key.shape[2], {}, None
    short = look.visible.causal and set(asked) <= HIDDEN.keys()
    rows_at_once = max(1, min(BLOCK, CELLS // (look.query.shape[1] * n_key)))
    for block in _cut(piece.start, piece.stop, rows_at_once):
        last = block.stop if short else n_key
        steps = look.block(block, last).calculate()
        for step in asked:
            if step not in found:
                size = (*look.query.shape[:2], piece.stop - piece.start, n_key)
                found[step] = steps[step].new_full(size, HIDDEN.get(step, 0.0))
            found[step][:, :, block.start - piece.start : block.stop - piece.start, :last] = steps[step]
    assert steps is not None, "a piece has at least one row"
    for step in asked:
        tap.hand(Seen(place, step, found[step], heads, rows[piece], steps.step(step)))


def _cut(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(top, min(top + size, stop)) for top in range(start, stop, size))
