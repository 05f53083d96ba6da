"""Batches as NumPy arrays, each a pure function of `position`, the number of samples since the start of training.

All ranks read the same batch; `rank_slice` selects the rows of one.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.datasets.shards import TokenColumn, TokenShards
from peasy.errors import InvalidInput
from peasy.parameters import Record

Indices = NDArray[np.int64]
_ROUNDS = 6


def shuffled_indices(size: int, positions: ArrayLike, *, seed: int) -> Indices:
    """Return the sample index at each position.

    >>> sorted(shuffled_indices(5, range(5), seed=1).tolist())
    [0, 1, 2, 3, 4]
    >>> shuffled_indices(5, [7], seed=1).tolist() == shuffled_indices(5, range(10), seed=1)[7:8].tolist()
    True
    """
    if size < 1:
        raise InvalidInput("There are no samples to shuffle.")
    positions_array = np.atleast_1d(np.asarray(positions, dtype=np.int64))
    if positions_array.size and positions_array.min() < 0:
        raise InvalidInput(f"Position {positions_array.min()} is negative.")
    epochs, offsets = positions_array // size, positions_array % size
    samples = np.empty_like(positions_array)
    for epoch in np.unique(epochs):
        in_epoch = epochs == epoch
        samples[in_epoch] = permute(size, offsets[in_epoch], seed=seed, epoch=int(epoch))
    return samples


def permute(size: int, indices: ArrayLike, *, seed: int, epoch: int) -> Indices:
    """Permute indices of 0..size-1 for this epoch."""
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    value = np.array(indices, dtype=np.uint64, ndmin=1)
    value = _feistel(value, half, keys)
    while (outside := value >= size).any():
        value[outside] = _feistel(value[outside], half, keys)
    return value.astype(np.int64)


def rank_slice(batch_size: int, *, world_size: int = 1, rank: int = 0) -> slice:
    """Return this rank's rows of a global batch; together the ranks take each row once."""
    if not 0 <= rank < world_size:
        raise InvalidInput(f"Rank {rank} is outside a world size of {world_size}.")
    if batch_size < 1 or batch_size % world_size:
        message = f"A batch of {batch_size} cannot be split evenly over {world_size} processes."
        raise InvalidInput(message, hint=f"Use a multiple of {world_size}.")
    rows = batch_size // world_size
    return slice(rank * rows, (rank + 1) * rows)


@lru_cache(maxsize=64)
def _round_keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence([seed % 2**64, epoch]).generate_state(_ROUNDS, np.uint64).astype(np.uint64)


def _feistel(value: NDArray[np.uint64], half: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the Feistel network once; it is a bijection."""
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = value >> shift, value & mask
    for key in keys:
        mixed = right ^ key  # finalizer of splitmix64: spreads every bit over all others
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & mask)
    return (left << shift) | right


_BoolArray = NDArray[np.bool_]
_SORT_POOL = 32
"""Batches sorted by length together: enough to save padding, few enough to stay shuffled."""


class WindowBatch(Record):
    """Windows of `inputs`, with the next tokens as `targets`; `padding_mask` is False on padding."""

    inputs: Indices
    targets: Indices
    padding_mask: _BoolArray
    sample_indices: Indices


class PaddedBatch(Record):
    """Whole documents, padded to the longest; `padding_mask` is True on their tokens."""

    ids: Indices
    padding_mask: _BoolArray
    sample_indices: Indices


def num_windows(column: TokenColumn, seq_len: int) -> int:
    """Return the number of windows per epoch."""
    if seq_len < 1:
        raise InvalidInput("The sequence length must be at least 1 token.")
    count = len(column) // seq_len - 1 if len(column) >= 2 * seq_len else (len(column) - 1) // seq_len
    if count < 1:
        message = f"There are {len(column):,} tokens, too few for one window of {seq_len:,} and its next token."
        raise InvalidInput(message, hint="Use more text, or a shorter sequence length.")
    return count


def window_batch(column: TokenColumn, seq_len: int, batch_size: int, *, seed: int, position: int) -> WindowBatch:
    """Return the batch of next-token windows at a position: each window once per epoch.

    Windows do not overlap; the start of the first one differs between epochs, so that every token occurs at every
    position of the context.
    """
    size = num_windows(column, seq_len)
    positions = np.arange(position, position + batch_size, dtype=np.int64)
    samples = shuffled_indices(size, positions, seed=seed)
    epochs = positions // size
    slack = len(column) - 1 - size * seq_len  # how far the last window can be shifted
    max_shift = min(seq_len, slack + 1)
    shifts = {int(e): int(permute(max_shift, 0, seed=seed, epoch=int(e))[0]) for e in np.unique(epochs)}
    starts = samples * seq_len + np.array([shifts[int(epoch)] for epoch in epochs], dtype=np.int64)
    rows = column.windows(starts, seq_len + 1)
    return WindowBatch(rows[:, :-1], rows[:, 1:], np.ones((len(rows), seq_len), dtype=bool), samples)


def sequential_windows(column: TokenColumn, seq_len: int, batch_size: int) -> Iterator[WindowBatch]:
    """Yield a column once, in order: non-overlapping windows, every token but the first a target exactly once.

    The last window is padded with zeros, where `padding_mask` is False.
    """
    last = len(column) - 1
    if last < 1:
        raise InvalidInput("There are fewer than two tokens.")
    starts = np.arange(0, last, seq_len, dtype=np.int64)
    for first in range(0, len(starts), batch_size):
        chunk = starts[first : first + batch_size]
        lengths = np.minimum(seq_len, last - chunk)
        rows, padding_mask = _pad_rows(column, chunk, lengths + 1, seq_len + 1, 0)
        yield WindowBatch(rows[:, :-1], rows[:, 1:], padding_mask[:, 1:], chunk // seq_len)


def padded_batch(
    column: TokenColumn, samples: Indices, *, pad: int = 0, bos: int | None = None, eos: int | None = None
) -> PaddedBatch:
    """Return whole documents as padded rows, with bos and eos added where given."""
    starts, ends = column.bounds(samples)
    texts, _ = _pad_rows(column, starts, ends - starts, int((ends - starts).max(initial=0)), pad)
    rows = np.pad(texts, ((0, 0), (int(bos is not None), int(eos is not None))), constant_values=pad)
    lengths = ends - starts + rows.shape[1] - texts.shape[1]
    if bos is not None:
        rows[:, 0] = bos
    if eos is not None:
        rows[np.arange(len(rows)), lengths - 1] = eos
    return PaddedBatch(rows, np.arange(rows.shape[1]) < lengths[:, None], samples)


def bucketed_indices(shards: TokenShards, batch_size: int, *, seed: int, position: int) -> Indices:
    """Return the training documents of the batch at a position: each once per epoch, grouped by similar length.

    `position` must be a multiple of `batch_size`.
    """
    if position % batch_size:
        raise InvalidInput(f"Position {position:,} is not a multiple of the batch size {batch_size}.")
    names = ("source", "target") if shards.kind == "pairs" else ("tokens",)
    columns = [shards.column("train", name) for name in names]
    pool, index_in_pool = divmod(position // batch_size, _SORT_POOL)
    pool_positions = np.arange(_SORT_POOL * batch_size) + pool * _SORT_POOL * batch_size
    samples = shuffled_indices(columns[0].num_documents, pool_positions, seed=seed)
    lengths = np.max([column.lengths(samples) for column in columns], axis=0)
    # A stable sort keeps the shuffled order of equal lengths, so that batches differ between epochs.
    samples = samples[np.argsort(lengths, kind="stable")]
    start = int(permute(_SORT_POOL, index_in_pool, seed=seed, epoch=pool)[0]) * batch_size
    return samples[start : start + batch_size]


def _pad_rows(
    column: TokenColumn, starts: Indices, lengths: Indices, width: int, pad: int
) -> tuple[Indices, _BoolArray]:
    padding_mask = np.arange(width) < lengths[:, None]
    return np.where(padding_mask, column.values.ragged(starts, lengths, width), pad), padding_mask
