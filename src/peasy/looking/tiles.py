"""Tiled overview of long attention matrices: mean or max of square tiles, without storing the whole matrix.

Weights are computed by the formula for a few rows of one head at a time, reduced to tiles and discarded. Tests compare
every tile with the whole matrix.
"""

import numpy as np
import torch
from torch import Tensor

from peasy.errors import InvalidInput
from peasy.formula import weigh
from peasy.looking.record import Overview
from peasy.nn.place import Place
from peasy.nn.watch import Look

ROWS = 256
"""Rows of one head per block: their weights stay in the CPU cache."""

REDUCTIONS = ("mean", "max")


class Tiler:
    """Tap callback that makes a tiled overview of every attention."""

    def __init__(
        self, tile: int, how: str = "mean", heads: tuple[int, ...] | None = None, scaled: bool = False
    ) -> None:
        if how not in REDUCTIONS:
            raise InvalidInput(f'There is no overview "{how}".', hint="Choose mean or max.")
        if tile < 1:
            raise InvalidInput(f"The tile size is {tile}.", hint="Choose 1 or more.")
        self.tile, self.how, self.heads, self.scaled = tile, how, heads, scaled
        self.overviews: list[Overview] = []

    def examine(self, place: Place, look: Look) -> None:
        """Reduce one attention to tiles."""
        heads = tuple(range(look.query.shape[1])) if self.heads is None else self.heads
        tiles = fold_heads(look, heads, self.tile, self.how, self.scaled).cpu().numpy()
        n_query, n_key = look.query.shape[2], look.key.shape[2]
        self.overviews.append(Overview(place, heads, self.tile, self.how, tiles, n_query, n_key, self.scaled))


def choose_tile(longest: int, most: int = 128) -> int:
    """Return the smallest power of two that needs at most `max_tiles` tiles per axis.

    >>> choose_tile(100), choose_tile(8192), choose_tile(8193)
    (1, 64, 128)
    """
    return 1 << max(0, int(np.ceil(np.log2(longest / most))))


def fold_heads(look: Look, heads: tuple[int, ...], tile: int, how: str = "mean", scaled: bool = False) -> Tensor:
    """Return tiled weights `[head, query tile, key tile]` of the first sequence of a batch."""
    n_query, n_key = look.query.shape[2], look.key.shape[2]
    tiles = look.query.new_zeros(len(heads), -(-n_query // tile), -(-n_key // tile), dtype=torch.float32)
    step = tile * max(1, ROWS // tile)
    for first in range(0, n_query, step):
        rows = slice(first, min(first + step, n_query))
        last = rows.stop if look.visible.causal else n_key
        mask = (
            _ahead(rows, look.query.device) if look.visible.causal else look.visible.block(rows, last, look.query).mask
        )
        for index, head in enumerate(heads):
            exponentials, total = _weigh(look, head, rows, last, mask)
            if scaled:
                exponentials = exponentials * look.value[0, _shared(look, head), :last].float().norm(dim=-1)
            reduced = _fold(_fold(exponentials, tile, how) / total, tile, how, down=True)
            tiles[index, first // tile : first // tile + len(reduced), : reduced.shape[1]] = reduced
    return tiles / _cells(n_query, n_key, tile, tiles.device) if how == "mean" else tiles


def _weigh(look: Look, head: int, rows: slice, last: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return unnormalised weights `[query, key]` of some rows of one head, and their sums."""
    bias = None if look.visible.bias is None else _of_head(look.visible.bias, head)[rows, :last]
    query, key = look.query[0, head, rows] * look.scale, look.key[0, _shared(look, head), :last]
    head_mask = None if mask is None else _of_head(mask, head)
    return weigh(query, key, mask=head_mask, bias=bias, scale=1.0, softcap=look.softcap)


def _ahead(rows: slice, device: torch.device) -> Tensor:
    """Return the causal mask of a block of rows over its own keys, the last ones: `[row, key]`."""
    count = rows.stop - rows.start
    return torch.ones(count, count, dtype=torch.bool, device=device).tril()


def _of_head(array: Tensor, head: int) -> Tensor:
    """Select one head of the first sequence from a mask or bias, which may be shared by heads and batch."""
    return array if array.ndim == 2 else array[0, head % array.shape[1]]


def _shared(look: Look, head: int) -> int:
    """Return the KV head of a query head."""
    return head * look.key.shape[1] // look.query.shape[1]


def _fold(array: Tensor, tile: int, how: str, down: bool = False) -> Tensor:
    """Reduce every `tile` columns (or rows) to their sum or maximum; the last tile may be smaller."""
    dim = 0 if down else 1
    full = array.shape[dim] // tile * tile
    reduced = []
    if full:
        reduced.append(_reduce(array.narrow(dim, 0, full).unflatten(dim, (-1, tile)), how, dim + 1))
    if full < array.shape[dim]:
        reduced.append(_reduce(array.narrow(dim, full, array.shape[dim] - full), how, dim).unsqueeze(dim))
    return reduced[0] if len(reduced) == 1 else torch.cat(reduced, dim)


def _reduce(array: Tensor, how: str, dim: int) -> Tensor:
    return array.sum(dim) if how == "mean" else array.amax(dim)


def _cells(n_query: int, n_key: int, tile: int, device: torch.device) -> Tensor:
    def counts(size: int) -> Tensor:
        starts = torch.arange(0, size, tile, device=device)
        return (size - starts).clamp(max=tile).float()

    return counts(n_query)[:, None] * counts(n_key)
