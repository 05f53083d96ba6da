"""Clusters: vectors that point the same way, found by seeded k-means on the unit sphere."""

import numpy as np

from peasy.errors import InvalidInput

ROUNDS = 50


def cluster(vectors: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """The cluster of each vector, numbered in the order in which they first appear.

    >>> cluster(np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0]]), 2)
    [0, 1, 0, 1]
    """
    if not 1 <= count <= len(vectors):
        raise InvalidInput(f"{count} clusters of {len(vectors)} vectors.", hint=f"Choose 1 to {len(vectors)}.")
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    middles = unit[_apart(unit, count, np.random.default_rng(seed))]
    for _ in range(ROUNDS):
        nearest = (unit @ middles.T).argmax(axis=1)
        sums = np.stack([unit[nearest == each].sum(axis=0) for each in range(count)])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        moved = np.where(lengths > 1e-12, sums / np.maximum(lengths, 1e-12), middles)  # an empty one stays
        if np.allclose(moved, middles):
            break
        middles = moved
    order = list(dict.fromkeys(nearest.tolist()))
    return [order.index(each) for each in nearest.tolist()]


def _apart(unit: np.ndarray, count: int, random: np.random.Generator) -> list[int]:
    """Starting points far from each other: each next one is the vector that is furthest from all chosen ones."""
    chosen = [int(random.integers(len(unit)))]
    while len(chosen) < count:
        nearest = (unit @ unit[chosen].T).max(axis=1)
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
    return chosen
