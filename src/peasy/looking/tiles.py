"""Overviews of long texts: a matrix of weights in square tiles, a few rows at a time, never the whole matrix.

Weights come from the formula, a few rows of one head at a time, without the steps before them; they are folded into
tiles and forgotten. Tests hold every tile equal to the whole matrix of all steps.
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
"""About so many rows of one head at a time: their weights stay near the processor."""

REDUCTIONS = ("mean", "max")


class Tiler:
    """Makes an overview of every attention that a tap lets it examine."""

    def __init__(
        self, tile: int, how: str = "mean", heads: tuple[int, ...] | None = None, scaled: bool = False
    ) -> None:
        if how not in REDUCTIONS:
            raise InvalidInput(f'There is no overview "{how}".', hint="Choose mean or max.")
        if tile < 1:
            raise InvalidInput(f"A tile of {tile} is not possible.", hint="Choose 1 or more.")
        self.tile, self.how, self.heads, self.scaled = tile, how, heads, scaled
        self.overviews: list[Overview] = []

    def examine(self, place: Place, look: Look) -> None:
        """Fold one attention into tiles."""
        heads = tuple(range(look.query.shape[1])) if self.heads is None else self.heads
        found = fold_heads(look, heads, self.tile, self.how, self.scaled).cpu().numpy()
        n_query, n_key = look.query.shape[2], look.key.shape[2]
        self.overviews.append(Overview(place, heads, self.tile, self.how, found, n_query, n_key, self.scaled))


def choose_tile(longest: int, most: int = 128) -> int:
    """The smallest power of two that needs no more than `most` tiles each way.

    >>> choose_tile(100), choose_tile(8192), choose_tile(8193)
    (1, 64, 128)
    """
    return 1 << max(0, int(np.ceil(np.log2(longest / most))))


def fold_heads(look: Look, heads: tuple[int, ...], tile: int, how: str = "mean", scaled: bool = False) -> Tensor:
    """The weights of some heads in tiles, `[head, tiles of queries, tiles of keys]`, of the first text of a batch."""
    n_query, n_key = look.query.shape[2], look.key.shape[2]
    found = look.query.new_zeros(len(heads), -(-n_query // tile), -(-n_key // tile), dtype=torch.float32)
    step = tile * max(1, ROWS // tile)
    for first in range(0, n_query, step):
        rows = slice(first, min(first + step, n_query))
        last = rows.stop if look.visible.causal else n_key
        mask = (
            _ahead(rows, look.query.device) if look.visible.causal else look.visible.block(rows, last, look.query).mask
        )
        for place, head in enumerate(heads):
            powers, total = _weigh(look, head, rows, last, mask)
            if scaled:
                powers = powers * look.value[0, _shared(look, head), :last].float().norm(dim=-1)
            folded = _fold(_fold(powers, tile, how) / total, tile, how, down=True)
            found[place, first // tile : first // tile + len(folded), : folded.shape[1]] = folded
    return found / _cells(n_query, n_key, tile, found.device) if how == "mean" else found


def _weigh(look: Look, head: int, rows: slice, last: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The weights of some rows of one head by the formula, `[query, key]`, still to be divided by their sums."""
    bias = None if look.visible.bias is None else _of_head(look.visible.bias, head)[rows, :last]
    query, key = look.query[0, head, rows] * look.scale, look.key[0, _shared(look, head), :last]
    seen = None if mask is None else _of_head(mask, head)
    return weigh(query, key, mask=seen, bias=bias, scale=1.0, softcap=look.softcap)


def _ahead(rows: slice, device: torch.device) -> Tensor:
    """Who may look where among the last keys of a block of rows that only look back: `[row, last keys]`."""
    count = rows.stop - rows.start
    return torch.ones(count, count, dtype=torch.bool, device=device).tril()


def _of_head(array: Tensor, head: int) -> Tensor:
    """What belongs to one head of the first text; what is alike for all heads or texts is there once."""
    return array if array.ndim == 2 else array[0, head % array.shape[1]]


def _shared(look: Look, head: int) -> int:
    """The key head that a query head looks through."""
    return head * look.key.shape[1] // look.query.shape[1]


def _fold(array: Tensor, tile: int, how: str, down: bool = False) -> Tensor:
    """Every `tile` columns (or rows) become one: their sum or their largest; the last may be fewer."""
    dim = 0 if down else 1
    whole = array.shape[dim] // tile * tile
    pieces = []
    if whole:
        pieces.append(_reduce(array.narrow(dim, 0, whole).unflatten(dim, (-1, tile)), how, dim + 1))
    if whole < array.shape[dim]:
        pieces.append(_reduce(array.narrow(dim, whole, array.shape[dim] - whole), how, dim).unsqueeze(dim))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim)


def _reduce(array: Tensor, how: str, dim: int) -> Tensor:
    return array.sum(dim) if how == "mean" else array.amax(dim)


def _cells(n_query: int, n_key: int, tile: int, device: torch.device) -> Tensor:
    def counts(size: int) -> Tensor:
        starts = torch.arange(0, size, tile, device=device)
        return (size - starts).clamp(max=tile).float()

    return counts(n_query)[:, None] * counts(n_key)
