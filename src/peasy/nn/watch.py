"""Captures the steps of one attention for a tap; those inside the fused kernel are recomputed by the formula.

Only the requested rows and heads are recomputed, a block of rows at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from peasy.formula import AttentionSteps, attend
from peasy.nn.sight import Visible
from peasy.nn.tap import FORMULA_STEPS, Place, Seen, Tap

BLOCK, CELLS = 64, 1 << 21
"""Rows recomputed at a time, and the maximum number of scores among them, so that a block fits into the CPU cache."""

HIDDEN = {"masked": -torch.inf, "weights": 0.0}
"""Fill values of masked positions. For these steps, keys after a causal block's last row need not be computed."""


@dataclass(frozen=True, eq=False)
class Look:
    """Inputs of one attention call: queries, keys, values `[batch, head, time, d_head]`, mask and scale."""

    query: Tensor
    key: Tensor
    value: Tensor
    visible: Visible
    scale: float
    softcap: float | None = None

    def calculate(self) -> AttentionSteps:
        """Compute all steps by the formula."""
        return attend(
            self.query, self.key, self.value,
            mask=self.visible.mask, bias=self.visible.bias, causal=self.visible.causal,
            scale=self.scale, softcap=self.softcap,
        )  # fmt: skip

    def pick(self, heads: tuple[int, ...], rows: tuple[int, ...]) -> "Look":
        """Return the inputs of some heads and query rows, each head with the key/value head it shares."""
        kv_heads = tuple(head * self.key.shape[1] // self.query.shape[1] for head in heads)
        return Look(
            pick(self.query, heads, rows), pick(self.key, kv_heads), pick(self.value, kv_heads),
            self.visible.pick(heads, rows, self.query), self.scale, self.softcap,
        )  # fmt: skip

    def block(self, rows: slice, n_key: int) -> "Look":
        """Return the inputs of a slice of rows and the first keys, with one column of values: no context is needed."""
        return Look(
            self.query[:, :, rows], self.key[:, :, :n_key], self.value[:, :, :n_key, :1],
            self.visible.block(rows, n_key, self.query), self.scale, self.softcap,
        )  # fmt: skip


def watch(tap: Tap, place: Place, look: Look, context: Tensor) -> None:
    """Pass the requested steps of one attention call to the tap."""
    if tap.examine is not None:
        tap.examine(place, look)
    heads, rows = tap.heads_of(look.query.shape[1]), tap.rows_of(look.query.shape[2])
    selected = look.pick(heads, rows)
    projections = {"query": selected.query, "key": selected.key, "value": selected.value}
    for step, array in projections.items():
        if step in tap.steps:
            tap.hand(Seen(place, step, array, heads, rows if step == "query" else None))
    recomputed = [step for step in FORMULA_STEPS if step in tap.steps]
    if recomputed:
        for piece in _cut(0, len(rows), tap.block or len(rows)):
            _hand_piece(tap, place, selected, recomputed, heads, rows, piece)
    if "context" in tap.steps:
        tap.hand(Seen(place, "context", pick(context, heads, rows), heads, rows))


def pick(array: Tensor, heads: tuple[int, ...], rows: tuple[int, ...] | None = None) -> Tensor:
    """Select heads and rows of `[batch, head, time, width]`; without a copy if all are selected."""
    if heads != tuple(range(array.shape[1])):
        array = array[:, list(heads)]
    if rows is not None and rows != tuple(range(array.shape[2])):
        array = array[:, :, list(rows)]
    return array


def _hand_piece(
    tap: Tap, place: Place, look: Look, asked: list[str], heads: tuple[int, ...], rows: tuple[int, ...], piece: slice
) -> None:
    n_key, arrays, steps = look.key.shape[2], {}, None
    skip_future = look.visible.causal and set(asked) <= HIDDEN.keys()
    rows_at_once = max(1, min(BLOCK, CELLS // (look.query.shape[1] * n_key)))
    for block in _cut(piece.start, piece.stop, rows_at_once):
        last = block.stop if skip_future else n_key
        steps = look.block(block, last).calculate()
        for step in asked:
            if step not in arrays:
                shape = (*look.query.shape[:2], piece.stop - piece.start, n_key)
                arrays[step] = steps[step].new_full(shape, HIDDEN.get(step, 0.0))
            arrays[step][:, :, block.start - piece.start : block.stop - piece.start, :last] = steps[step]
    assert steps is not None, "a piece has at least one row"
    for step in asked:
        tap.hand(Seen(place, step, arrays[step], heads, rows[piece], steps.step(step)))


def _cut(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(top, min(top + size, stop)) for top in range(start, stop, size))
