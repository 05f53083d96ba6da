"""Tiled overview of long attention matrices: mean or max of square tiles, without storing the whole matrix.

Weights are computed by the formula for a few rows of one head at a time, reduced to tiles and discarded. Tests compare
every tile with the whole matrix.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.formula.attention import unnormalised_weights
from peasy.inspection.capture import output_norms
from peasy.inspection.results import NO_OUTPUT_PROJECTION, AttentionMeasure, AttentionOverview
from peasy.nn.capture import AttentionInputs
from peasy.nn.module_path import ModulePath

ROW_BLOCK = 256
"""Rows of one head per block: their weights stay in the CPU cache."""


class Tiler:
    """Tap callback that makes a tiled overview of every attention."""

    def __init__(
        self, tile: int, reduction: str = "mean", heads: tuple[int, ...] | None = None,
        measure: AttentionMeasure = "weight", output_weights: Mapping[ModulePath, Tensor] | None = None,
    ) -> None:  # fmt: skip
        if reduction not in ("mean", "max"):
            raise InvalidInput(f'There is no overview "{reduction}".', hint="Choose mean or max.")
        if tile < 1:
            raise InvalidInput(f"The tile size is {tile}.", hint="Choose 1 or more.")
        self.tile, self.reduction, self.heads, self.measure = tile, reduction, heads, measure
        self.output_weights = output_weights or {}
        self.overviews: list[AttentionOverview] = []

    def on_attention(self, path: ModulePath, inputs: AttentionInputs) -> None:
        """Reduce one attention to tiles."""
        heads = tuple(range(inputs.query.shape[1])) if self.heads is None else self.heads
        norms, num_heads = None, inputs.query.shape[1]  # the factor `[head, key]` of each weight
        if self.measure != "weight":
            values = inputs.value[0].float().repeat_interleave(num_heads // inputs.value.shape[1], dim=0)
            if self.measure == "value":
                norms = torch.sqrt(values.square().sum(dim=-1))
            elif (weight := self.output_weights.get(path)) is None:
                raise InvalidInput(NO_OUTPUT_PROJECTION)
            else:
                norms = output_norms(values, weight, range(num_heads))
        tiles = _tile_heads(inputs, heads, self.tile, self.reduction, norms).cpu().numpy()
        n_query, n_key = inputs.query.shape[2], inputs.key.shape[2]
        options = (self.tile, self.reduction, tiles, n_query, n_key, self.measure)
        self.overviews.append(AttentionOverview(path, heads, *options))


def choose_tile(length: int) -> int:
    """Return the smallest power of two that needs at most 128 tiles per axis.

    >>> choose_tile(100), choose_tile(8192), choose_tile(8193)
    (1, 64, 128)
    """
    return 1 << max(0, int(np.ceil(np.log2(length / 128))))


def _tile_heads(
    inputs: AttentionInputs, heads: tuple[int, ...], tile: int, reduction: str = "mean", norms: Tensor | None = None
) -> Tensor:
    """Return tiled weights `[head, query tile, key tile]` of the first sequence of a batch."""
    n_query, n_key = inputs.query.shape[2], inputs.key.shape[2]
    tiles = inputs.query.new_zeros(len(heads), -(-n_query // tile), -(-n_key // tile), dtype=torch.float32)
    step = tile * max(1, ROW_BLOCK // tile)
    for first in range(0, n_query, step):
        rows = slice(first, min(first + step, n_query))
        last = rows.stop if inputs.attention_mask.causal else n_key
        if inputs.attention_mask.causal:  # of the block's own keys, the last ones; earlier keys are all visible
            count = rows.stop - rows.start
            mask: Tensor | None = torch.ones(count, count, dtype=torch.bool, device=tiles.device).tril()
        else:
            mask = inputs.attention_mask.select(inputs.query, rows, n_key=last).mask
        for index, head in enumerate(heads):
            kv_head, bias = head * inputs.key.shape[1] // inputs.query.shape[1], inputs.attention_mask.bias
            exponentials, total = unnormalised_weights(
                inputs.query[0, head, rows] * inputs.scale,
                inputs.key[0, kv_head, :last],
                mask=None if mask is None else _select_head(mask, head),
                bias=None if bias is None else _select_head(bias, head)[rows, :last],
                scale=1.0,
                softcap=inputs.softcap,
                sinks=None if inputs.sinks is None else inputs.sinks[head],
            )
            if norms is not None:
                exponentials = exponentials * norms[head, :last]
            reduced = _fold(_fold(exponentials, tile, reduction) / total, tile, reduction, by_rows=True)
            tiles[index, first // tile : first // tile + len(reduced), : reduced.shape[1]] = reduced
    if reduction == "mean":
        sizes = (size - torch.arange(0, size, tile, device=tiles.device) for size in (n_query, n_key))
        rows_of, columns_of = (left.clamp(max=tile) for left in sizes)
        tiles /= (rows_of[:, None] * columns_of).float()
    return tiles


def _select_head(array: Tensor, head: int) -> Tensor:
    """Select one head of the first sequence from a mask or bias, which may be shared by heads and batch."""
    return array if array.ndim == 2 else array[0, head % array.shape[1]]


def _fold(array: Tensor, tile: int, reduction: str, by_rows: bool = False) -> Tensor:
    """Reduce every `tile` columns (or rows) to their sum or maximum; the last tile may be smaller."""
    dim, reduce = 0 if by_rows else 1, torch.sum if reduction == "mean" else torch.amax
    full = array.shape[dim] // tile * tile
    reduced = []
    if full:
        reduced.append(reduce(torch.unflatten(array.narrow(dim, 0, full), dim, (-1, tile)), dim + 1))
    if full < array.shape[dim]:
        reduced.append(reduce(array.narrow(dim, full, array.shape[dim] - full), dim).unsqueeze(dim))
    return reduced[0] if len(reduced) == 1 else torch.cat(reduced, dim)
