"""Spherical k-means clustering of vectors by cosine, seeded."""

import numpy as np

from peasy.errors import InvalidInput

ROUNDS = 50


def cluster(vectors: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """Return the cluster index of each vector; clusters are numbered in order of first appearance.

    >>> cluster(np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0]]), 2)
    [0, 1, 0, 1]
    """
    if not 1 <= count <= len(vectors):
        raise InvalidInput(f"{len(vectors)} vectors cannot form {count} clusters.", hint=f"Choose 1 to {len(vectors)}.")
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    centroids = unit[_apart(unit, count, np.random.default_rng(seed))]
    for _ in range(ROUNDS):
        labels = (unit @ centroids.T).argmax(axis=1)
        sums = np.stack([unit[labels == label].sum(axis=0) for label in range(count)])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        updated = np.where(lengths > 1e-12, sums / np.maximum(lengths, 1e-12), centroids)  # an empty cluster stays
        if np.allclose(updated, centroids):
            break
        centroids = updated
    order = list(dict.fromkeys(labels.tolist()))
    return [order.index(label) for label in labels.tolist()]


def _apart(unit: np.ndarray, count: int, random: np.random.Generator) -> list[int]:
    """Farthest-first initial centroids: each next one is the vector furthest from all chosen ones."""
    chosen = [int(random.integers(len(unit)))]
    while len(chosen) < count:
        nearest = (unit @ unit[chosen].T).max(axis=1)
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
    return chosen
