"""Captures the steps of one attention for a tap; those inside the fused kernel are recomputed by the formula.

Only the requested rows and heads are recomputed, a block of rows at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import array_api_compat.torch
import torch
from torch import Tensor

from peasy.formula.attention import AttentionSteps, attention_steps, weighted_sum
from peasy.nn.mask import AttentionMask
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import FORMULA_STEPS, Activation, Tap

_ROW_BLOCK, _MAX_SCORES = 64, 1 << 21
"""Rows recomputed at a time, and the maximum number of scores among them, so that a block fits into the CPU cache."""

_MASK_FILL = {"masked": -torch.inf, "weights": 0.0}
"""Fill values of masked positions. For these steps, keys after a causal block's last row need not be computed."""


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Inputs of one attention call: queries, keys, values `[batch, head, time, d_head]`, mask and scale."""

    query: Tensor
    key: Tensor
    value: Tensor
    attention_mask: AttentionMask
    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None
    """Sink score of each head, `[head]`."""

    def compute_steps(self) -> AttentionSteps:
        """Compute all steps by the formula."""
        arrays = self.query, self.key, self.value, self.attention_mask.bias, self.sinks
        dtype = reduce(torch.promote_types, (array.dtype for array in arrays if array is not None), torch.float32)
        query, key, value, bias, sinks = (None if array is None else array.to(dtype) for array in arrays)
        mask = self.attention_mask.boolean(self.query)
        return attention_steps(
            array_api_compat.torch, query, key, value, mask, bias, scale=self.scale, softcap=self.softcap, sinks=sinks
        )

    def context_of(self, weights: Tensor) -> Tensor:
        """Return the context for other weights, `[batch, head, query, key]`."""
        context: Tensor = weighted_sum(weights, self.value)
        return context.to(self.query.dtype)

    def expand_keys(self) -> "AttentionInputs":
        """Return the inputs with keys and values for each row of the queries: an intervention may add rows."""
        rows = len(self.query)
        if len(self.key) == rows:
            return self
        key, value = (array.expand(rows, -1, -1, -1) for array in (self.key, self.value))
        return replace(self, key=key, value=value)

    def visible_keys(self, row: int) -> tuple[int, int]:
        """Return the keys of a query as (first, end), where the mask is a range."""
        assert self.attention_mask.key_range is not None, "the keys are no range"
        causal, window = self.attention_mask.key_range
        end = self.key.shape[2] - self.query.shape[2] + row + 1 if causal else self.key.shape[2]
        return (0 if window is None else max(end - window, 0)), end

    def select(self, heads: tuple[int, ...], rows: tuple[int, ...]) -> "AttentionInputs":
        """Return the inputs of some heads and query rows, each head with the key/value head it shares."""
        kv_heads = tuple(head * self.key.shape[1] // self.query.shape[1] for head in heads)
        return AttentionInputs(
            _select_heads_and_rows(self.query, heads, rows), _select_heads_and_rows(self.key, kv_heads),
            _select_heads_and_rows(self.value, kv_heads), self.attention_mask.select(self.query, rows, heads=heads),
            self.scale, self.softcap, None if self.sinks is None else self.sinks[list(heads)],
        )  # fmt: skip


def capture_steps(
    tap: Tap, path: ModulePath, inputs: AttentionInputs, context: Tensor, weights: Tensor | None = None
) -> None:
    """Pass the requested steps of one attention call to the tap; `weights` are those that an intervention changed."""
    if tap.on_attention is not None:
        tap.on_attention(path, inputs)
    heads, rows = tap.resolve_heads(inputs.query.shape[1]), tap.resolve_rows(inputs.query.shape[2])
    selected = inputs.select(heads, rows)
    projections = {"query": selected.query, "key": selected.key, "value": selected.value}
    for step, array in projections.items():
        if step in tap.steps:
            tap.callback(Activation(path, step, array, heads, rows if step == "query" else None))
    recomputed = [step for step in FORMULA_STEPS if step in tap.steps and (step != "weights" or weights is None)]
    for piece in _row_slices(0, len(rows), tap.rows_per_block or len(rows)):
        if recomputed:
            n_key, arrays = selected.key.shape[2], dict[str, Tensor]()
            skip_future = selected.attention_mask.causal and set(recomputed) <= _MASK_FILL.keys()
            rows_at_once = max(1, min(_ROW_BLOCK, _MAX_SCORES // (selected.query.shape[1] * n_key)))
            for block in _row_slices(piece.start, piece.stop, rows_at_once):
                last = block.stop if skip_future else n_key
                steps = replace(  # no context is needed: one column of values
                    selected, query=selected.query[:, :, block], key=selected.key[:, :, :last],
                    value=selected.value[:, :, :last, :1],
                    attention_mask=selected.attention_mask.select(selected.query, block, n_key=last),
                ).compute_steps()  # fmt: skip
                for step in recomputed:
                    if step not in arrays:
                        shape = (*selected.query.shape[:2], piece.stop - piece.start, n_key)
                        arrays[step] = steps[step].new_full(shape, _MASK_FILL.get(step, 0.0))
                    arrays[step][:, :, block.start - piece.start : block.stop - piece.start, :last] = steps[step]
            for step, array in arrays.items():
                tap.callback(Activation(path, step, array, heads, rows[piece], steps.step(step)))
        if weights is not None and "weights" in tap.steps:
            selected_weights = _select_heads_and_rows(weights, heads, rows[piece])
            tap.callback(Activation(path, "weights", selected_weights, heads, rows[piece]))
    if "context" in tap.steps:
        tap.callback(Activation(path, "context", _select_heads_and_rows(context, heads, rows), heads, rows))


def _select_heads_and_rows(array: Tensor, heads: tuple[int, ...], rows: tuple[int, ...] | None = None) -> Tensor:
    """Select heads and rows of `[batch, head, time, width]`; without a copy if all are selected."""
    if heads != tuple(range(array.shape[1])):
        array = array[:, list(heads)]
    if rows is not None and rows != tuple(range(array.shape[2])):
        array = array[:, :, list(rows)]
    return array


def _row_slices(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(top, min(top + size, stop)) for top in range(start, stop, size))
