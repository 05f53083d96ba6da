"""Stateless shuffle: order of samples as a permutation of (seed, epoch, position), and the rows of each rank.

A position counts samples from the start of training over all epochs: epoch = position // size. Each epoch uses another
keyed permutation of 0..size-1: a Feistel network on the next power of four, with cycle walking. So each sample occurs
exactly once per epoch, in constant memory, from any starting position.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput

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
    """Permute indices of 0..size-1 for this epoch.

    >>> sorted(permute(6, range(6), seed=3, epoch=0).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = _round_keys(seed, epoch)
    value = np.array(indices, dtype=np.uint64, ndmin=1)
    value = _feistel(value, half, keys)
    while (outside := value >= size).any():
        value[outside] = _feistel(value[outside], half, keys)
    return value.astype(np.int64)


def rank_slice(batch_size: int, *, world_size: int = 1, rank: int = 0) -> slice:
    """Return this rank's rows of a global batch; together the ranks take each row once.

    >>> [rank_slice(12, world_size=3, rank=r) for r in range(3)]
    [slice(0, 4, None), slice(4, 8, None), slice(8, 12, None)]
    """
    if not 0 <= rank < world_size:
        raise InvalidInput(f"Rank {rank} is outside a world size of {world_size}.")
    if batch_size < 1 or batch_size % world_size:
        raise InvalidInput(
            f"A batch of {batch_size} cannot be split evenly over {world_size} processes.",
            hint=f"Use a multiple of {world_size}.",
        )
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
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalizer of splitmix64: spreads every bit over all others."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
