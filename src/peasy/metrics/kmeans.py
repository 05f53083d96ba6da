"""Spherical k-means clustering of vectors by cosine, seeded; unit vectors."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from peasy.errors import InvalidInput

_MAX_ITERATIONS = 50
Float = TypeVar("Float", np.float32, np.float64)


def unit_vectors(vectors: NDArray[Float]) -> NDArray[Float]:
    """Scale each row to length 1, so that products of rows are cosines; a row of zeros stays zero."""
    unit: NDArray[Float] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def spherical_kmeans(vectors: NDArray[Float], num_clusters: int, seed: int = 0) -> list[int]:
    """Return the cluster index of each vector; clusters are numbered in order of first appearance.

    >>> spherical_kmeans(np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0]]), 2)
    [0, 1, 0, 1]
    """
    if not 1 <= num_clusters <= len(vectors):
        message = f"{len(vectors)} vectors cannot form {num_clusters} clusters."
        raise InvalidInput(message, hint=f"Choose 1 to {len(vectors)}.")
    unit = unit_vectors(vectors)
    # Farthest-first initial centroids: each next one is the vector furthest from all chosen ones.
    chosen = [int(np.random.default_rng(seed).integers(len(unit)))]
    while len(chosen) < num_clusters:
        nearest = (unit @ unit[chosen].T).max(axis=1)
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
    centroids = unit[chosen]
    for _ in range(_MAX_ITERATIONS):
        labels = (unit @ centroids.T).argmax(axis=1)
        sums = np.stack([unit[labels == label].sum(axis=0) for label in range(num_clusters)])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        updated = np.where(lengths > 1e-12, sums / np.maximum(lengths, 1e-12), centroids)  # an empty cluster stays
        if np.allclose(updated, centroids):
            break
        centroids = updated
    order = list(dict.fromkeys(labels.tolist()))
    return [order.index(label) for label in labels.tolist()]
