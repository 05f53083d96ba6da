"""The order of samples, from arithmetic alone: no list is shuffled, no state is kept, any place can be asked for.

A position counts samples from the start of training and runs on over epochs: epoch = position // size. Within an epoch
the samples are put in another order by a keyed permutation of 0..size-1: a Feistel network on the next power of four,
walked until it lands inside. So each sample comes exactly once per epoch, in constant memory, wherever reading starts.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput

Indices = NDArray[np.int64]
_ROUNDS = 6


def indices(size: int, positions: ArrayLike, *, seed: int) -> Indices:
    """The sample at each position.

    >>> sorted(indices(5, range(5), seed=1).tolist())
    [0, 1, 2, 3, 4]
    >>> indices(5, [7], seed=1).tolist() == indices(5, range(10), seed=1)[7:8].tolist()
    True
    """
    if size < 1:
        raise InvalidInput("There is not one sample to put in order.")
    at = np.atleast_1d(np.asarray(positions, dtype=np.int64))
    if at.size and at.min() < 0:
        raise InvalidInput(f"Positions count from 0, and one is {at.min()}.")
    epochs, places = at // size, at % size
    found = np.empty_like(at)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        found[here] = permute(size, places[here], seed=seed, epoch=int(epoch))
    return found


def permute(size: int, places: ArrayLike, *, seed: int, epoch: int) -> Indices:
    """Where each place of 0..size-1 goes in this epoch: another place for every place, none twice.

    >>> sorted(permute(6, range(6), seed=3, epoch=0).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = _keys(seed, epoch)
    value = np.array(places, dtype=np.uint64, ndmin=1)
    value = _scramble(value, half, keys)
    while (outside := value >= size).any():
        value[outside] = _scramble(value[outside], half, keys)
    return value.astype(np.int64)


def share(batch: int, *, world: int = 1, rank: int = 0) -> slice:
    """The rows of a global batch that one of `world` processes takes; together they take each row once.

    >>> [share(12, world=3, rank=r) for r in range(3)]
    [slice(0, 4, None), slice(4, 8, None), slice(8, 12, None)]
    """
    if not 0 <= rank < world:
        raise InvalidInput(f"Rank {rank} is not one of {world}.")
    if batch < 1 or batch % world:
        raise InvalidInput(
            f"A batch of {batch} cannot be shared evenly by {world}.", hint=f"Take a multiple of {world}."
        )
    each = batch // world
    return slice(rank * each, (rank + 1) * each)


@lru_cache(maxsize=64)
def _keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    return np.random.SeedSequence([seed % 2**64, epoch]).generate_state(_ROUNDS, np.uint64).astype(np.uint64)


def _scramble(value: NDArray[np.uint64], half: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One pass of the network: two halves take turns at masking each other, which can always be undone."""
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = value >> shift, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all others (the finish of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
