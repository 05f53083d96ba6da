"""Batches as plain arrays, each a pure function of where training stands: `position` counts samples from its start.

All processes of a run ask with the same position and the size of the whole batch; each gets its own rows of it.
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
"""Batches that are sorted by length together: enough to waste little padding, few enough to stay mixed."""


@dataclass(frozen=True)
class Windows:
    """Rows of `inputs`, and in `targets` the token that follows each; `real` is False where a row is padded."""

    inputs: Ids
    targets: Ids
    real: Mask
    samples: Ids


@dataclass(frozen=True)
class Padded:
    """Whole documents as rows, filled up to the longest; `real` is True on their own tokens."""

    ids: Ids
    real: Mask
    samples: Ids


def window_count(column: Column, context: int) -> int:
    """How many windows an epoch has."""
    if context < 1:
        raise InvalidInput("A context has at least 1 token.")
    count = len(column) // context - 1 if len(column) >= 2 * context else (len(column) - 1) // context
    if count < 1:
        raise InvalidInput(
            f"There are {len(column):,} tokens, too few for one window of {context:,} and the token after it.",
            hint="Give more text, or a shorter context.",
        )
    return count


def windows(
    column: Column, context: int, batch: int, *, seed: int, position: int, world: int = 1, rank: int = 0
) -> Windows:
    """The batch of next-token windows at a position: each window once per epoch.

    Windows do not overlap; where the first one starts differs from epoch to epoch, so that every token gets to
    stand at every place of the context.
    """
    size = window_count(column, context)
    positions = np.arange(position, position + batch, dtype=np.int64)[share(batch, world=world, rank=rank)]
    samples = indices(size, positions, seed=seed)
    starts = samples * context + _shifts(column, context, size, positions // size, seed)
    rows = column.windows(starts, context + 1)
    return Windows(rows[:, :-1], rows[:, 1:], np.ones((len(rows), context), dtype=bool), samples)


def _shifts(column: Column, context: int, size: int, epochs: Ids, seed: int) -> Ids:
    room = len(column) - 1 - size * context  # how far the last window can be moved
    reach = min(context, room + 1)
    drawn = {int(e): int(permute(reach, 0, seed=seed, epoch=int(e))[0]) for e in np.unique(epochs)}
    return np.array([drawn[int(epoch)] for epoch in epochs], dtype=np.int64)


def windows_in_order(column: Column, context: int, batch: int) -> Iterator[Windows]:
    """All of a column once, in order: windows that do not overlap, every token but the first a target exactly once.

    The last window is filled up with zeros, where `real` is False.
    """
    last = len(column) - 1
    if last < 1:
        raise InvalidInput("There are fewer than two tokens to look at.")
    starts = np.arange(0, last, context, dtype=np.int64)
    for first in range(0, len(starts), batch):
        some = starts[first : first + batch]
        lengths = np.minimum(context, last - some)
        rows, real = _padded(column, some, lengths + 1, context + 1, 0)
        yield Windows(rows[:, :-1], rows[:, 1:], real[:, 1:], some // context)


def padded(column: Column, samples: Ids, *, pad: int = 0, begin: int | None = None, end: int | None = None) -> Padded:
    """Whole documents as rows, with the begin and end token around each where they are given."""
    starts, ends = column.bounds(samples)
    lengths = ends - starts
    rows, real = _padded(column, starts, lengths, int(lengths.max(initial=0)), pad)
    if begin is not None:
        rows = np.concatenate([np.full((len(rows), 1), begin, dtype=np.int64), rows], axis=1)
        real = np.concatenate([np.ones((len(rows), 1), dtype=bool), real], axis=1)
        lengths = lengths + 1
    if end is not None:
        rows = np.concatenate([rows, np.full((len(rows), 1), pad, dtype=np.int64)], axis=1)
        real = np.concatenate([real, np.zeros((len(rows), 1), dtype=bool)], axis=1)
        at = np.arange(len(rows))
        rows[at, lengths], real[at, lengths] = end, True
    return Padded(rows, real, samples)


def picks(
    shards: Shards, batch: int, *, seed: int, position: int, split: str = "train", world: int = 1, rank: int = 0
) -> Ids:
    """Which documents make up the batch at a position: each once per epoch, those of similar length together.

    Batches count from 0: `position` is a multiple of `batch`.
    """
    if position % batch:
        raise InvalidInput(f"Position {position:,} is not at the start of a batch of {batch}.")
    columns = [shards.column(split, name) for name in ("tokens", "source", "target") if _has(shards, name)]
    pool, place = divmod(position // batch, _POOL)
    size = columns[0].documents
    found = indices(size, np.arange(pool * _POOL * batch, (pool + 1) * _POOL * batch), seed=seed)
    lengths = np.max([column.lengths(found) for column in columns], axis=0)
    # Equal lengths stay in the drawn order, so that what stands together differs from epoch to epoch.
    found = found[np.argsort(lengths, kind="stable")]
    start = int(permute(_POOL, place, seed=seed, epoch=pool)[0]) * batch
    return found[start : start + batch][share(batch, world=world, rank=rank)]


def _has(shards: Shards, name: str) -> bool:
    return name in (("source", "target") if shards.kind == "pairs" else ("tokens",))


def _padded(column: Column, starts: Ids, lengths: Ids, width: int, pad: int) -> tuple[Ids, Mask]:
    real = np.arange(width) < lengths[:, None]
    return np.where(real, column.values.ragged(starts, lengths, width), pad), real
