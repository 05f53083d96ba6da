"""Batches as NumPy arrays, each a pure function of `position`, the number of samples since the start of training.

All ranks pass the same position and the global batch size; each gets its own rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peasy.corpora.order import indices, permute, share
from peasy.corpora.shards import Column, Shards
from peasy.errors import InvalidInput

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
_POOL = 32
"""Batches sorted by length together: enough to save padding, few enough to stay shuffled."""


@dataclass(frozen=True)
class Windows:
    """Windows of `inputs`, with the next tokens as `targets`; `padding_mask` is False on padding."""

    inputs: Ids
    targets: Ids
    real: Mask
    samples: Ids


@dataclass(frozen=True)
class Padded:
    """Whole documents, padded to the longest; `padding_mask` is True on their tokens."""

    ids: Ids
    real: Mask
    samples: Ids


def window_count(column: Column, context: int) -> int:
    """Return the number of windows per epoch."""
    if context < 1:
        raise InvalidInput("The context must be at least 1 token.")
    count = len(column) // context - 1 if len(column) >= 2 * context else (len(column) - 1) // context
    if count < 1:
        raise InvalidInput(
            f"There are {len(column):,} tokens, too few for one window of {context:,} and its next token.",
            hint="Use more text, or a shorter context.",
        )
    return count


def windows(
    column: Column, context: int, batch: int, *, seed: int, position: int, world: int = 1, rank: int = 0
) -> Windows:
    """Return the batch of next-token windows at a position: each window once per epoch.

    Windows do not overlap; the start of the first one differs between epochs, so that every token occurs at every
    position of the context.
    """
    size = window_count(column, context)
    positions = np.arange(position, position + batch, dtype=np.int64)[share(batch, world=world, rank=rank)]
    samples = indices(size, positions, seed=seed)
    starts = samples * context + _shifts(column, context, size, positions // size, seed)
    rows = column.windows(starts, context + 1)
    return Windows(rows[:, :-1], rows[:, 1:], np.ones((len(rows), context), dtype=bool), samples)


def _shifts(column: Column, context: int, size: int, epochs: Ids, seed: int) -> Ids:
    slack = len(column) - 1 - size * context  # how far the last window can be shifted
    max_shift = min(context, slack + 1)
    shifts = {int(e): int(permute(max_shift, 0, seed=seed, epoch=int(e))[0]) for e in np.unique(epochs)}
    return np.array([shifts[int(epoch)] for epoch in epochs], dtype=np.int64)


def windows_in_order(column: Column, context: int, batch: int) -> Iterator[Windows]:
    """Yield a column once, in order: non-overlapping windows, every token but the first a target exactly once.

    The last window is padded with zeros, where `padding_mask` is False.
    """
    last = len(column) - 1
    if last < 1:
        raise InvalidInput("There are fewer than two tokens.")
    starts = np.arange(0, last, context, dtype=np.int64)
    for first in range(0, len(starts), batch):
        chunk = starts[first : first + batch]
        lengths = np.minimum(context, last - chunk)
        rows, padding_mask = _padded(column, chunk, lengths + 1, context + 1, 0)
        yield Windows(rows[:, :-1], rows[:, 1:], padding_mask[:, 1:], chunk // context)


def padded(column: Column, samples: Ids, *, pad: int = 0, begin: int | None = None, end: int | None = None) -> Padded:
    """Return whole documents as padded rows, with bos and eos added where given."""
    starts, ends = column.bounds(samples)
    lengths = ends - starts
    rows, padding_mask = _padded(column, starts, lengths, int(lengths.max(initial=0)), pad)
    if begin is not None:
        rows = np.concatenate([np.full((len(rows), 1), begin, dtype=np.int64), rows], axis=1)
        padding_mask = np.concatenate([np.ones((len(rows), 1), dtype=bool), padding_mask], axis=1)
        lengths = lengths + 1
    if end is not None:
        rows = np.concatenate([rows, np.full((len(rows), 1), pad, dtype=np.int64)], axis=1)
        padding_mask = np.concatenate([padding_mask, np.zeros((len(rows), 1), dtype=bool)], axis=1)
        row_indices = np.arange(len(rows))
        rows[row_indices, lengths], padding_mask[row_indices, lengths] = end, True
    return Padded(rows, padding_mask, samples)


def picks(
    shards: Shards, batch: int, *, seed: int, position: int, split: str = "train", world: int = 1, rank: int = 0
) -> Ids:
    """Return the document indices of the batch at a position: each once per epoch, grouped by similar length.

    `position` must be a multiple of `batch_size`.
    """
    if position % batch:
        raise InvalidInput(f"Position {position:,} is not a multiple of the batch size {batch}.")
    columns = [shards.column(split, name) for name in ("tokens", "source", "target") if _has(shards, name)]
    pool, index_in_pool = divmod(position // batch, _POOL)
    size = columns[0].documents
    samples = indices(size, np.arange(pool * _POOL * batch, (pool + 1) * _POOL * batch), seed=seed)
    lengths = np.max([column.lengths(samples) for column in columns], axis=0)
    # A stable sort keeps the shuffled order of equal lengths, so that batches differ between epochs.
    samples = samples[np.argsort(lengths, kind="stable")]
    start = int(permute(_POOL, index_in_pool, seed=seed, epoch=pool)[0]) * batch
    return samples[start : start + batch][share(batch, world=world, rank=rank)]


def _has(shards: Shards, name: str) -> bool:
    return name in (("source", "target") if shards.kind == "pairs" else ("tokens",))


def _padded(column: Column, starts: Ids, lengths: Ids, width: int, pad: int) -> tuple[Ids, Mask]:
    padding_mask = np.arange(width) < lengths[:, None]
    return np.where(padding_mask, column.values.ragged(starts, lengths, width), pad), padding_mask
