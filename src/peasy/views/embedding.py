"""Embedding vectors as documents: PCA maps, nearest neighbours by cosine similarity, cosines of texts."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.inspection.results import Similarity
from peasy.views import document as doc

PCA_AXES = ("first principal component", "second principal component")
_NUM_NEIGHBOURS = 5
_MAX_POINTS = 2_000
"""Maximum number of points on one map; the document notes if more were given."""
_TOP_PAIRS = 8


def embedding_map(
    title: str, names: Sequence[str], vectors: np.ndarray, groups: Sequence[str] = (),
    num_neighbours: int = _NUM_NEIGHBOURS,
) -> tuple[doc.Plane, float]:  # fmt: skip
    """Return the map and its share of explained variance."""
    vectors = np.asarray(vectors, dtype=float)
    if vectors.ndim != 2 or len(vectors) != len(names):
        message = f"{len(names)} names for vectors of shape {vectors.shape}."
        raise InvalidInput(message, hint="Give one vector for each name.")
    vectors, names = vectors[:_MAX_POINTS], names[:_MAX_POINTS]
    coordinates, explained = pca_2d(vectors)
    near = tuple(tuple(other for other, _ in neighbours) for neighbours in nearest_neighbours(vectors, num_neighbours))
    points = tuple((name, float(x), float(y)) for name, (x, y) in zip(names, coordinates, strict=True))
    return doc.Plane(title, points, *PCA_AXES, groups=tuple(groups[: len(names)]), neighbours=near), explained


def pca_2d(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the coordinates on the first two principal components (PCA) and the share of explained variance.

    >>> coordinates, share = pca_2d(np.array([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    >>> coordinates.shape, round(share, 2)
    ((3, 2), 1.0)
    """
    centred = vectors - vectors.mean(axis=0, keepdims=True)
    _, singular_values, components = np.linalg.svd(centred, full_matrices=False)
    # The sign of a component is arbitrary: its largest entry is made positive.
    signs = np.sign(components[np.arange(len(components)), np.abs(components).argmax(axis=1)])
    components = components * np.where(signs == 0, 1, signs)[:, None]
    coordinates = centred @ components[:2].T
    variance = float((singular_values**2).sum())
    padded = np.zeros((len(vectors), 2))
    padded[:, : coordinates.shape[1]] = coordinates
    return padded, float((singular_values[:2] ** 2).sum()) / variance if variance > 0 else 1.0


def nearest_neighbours(vectors: np.ndarray, count: int = _NUM_NEIGHBOURS) -> list[list[tuple[int, float]]]:
    """Return the nearest other vectors of each vector, with their cosine similarity."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : max(min(count, len(vectors) - 1), 0)]
    return [[(int(other), float(cosines[index, other])) for other in row] for index, row in enumerate(order)]


def similarity_document(similarity: Similarity) -> doc.Document:
    """Document with the cosine similarity, the pairs that contribute most, and the matrix of all pairs."""
    pairs = np.asarray(similarity.pairs, dtype=float)
    first, second = similarity.first.words, similarity.second.words
    size = np.abs(pairs)  # pairs with punctuation come last: they say little about the meaning
    for axis, words in enumerate((first, second)):
        marks = [not any(letter.isalnum() for letter in word) for word in words]
        size = size - np.expand_dims(np.asarray(marks) * 1e6, 1 - axis)
    order = np.argsort(-size, axis=None, kind="stable")[:_TOP_PAIRS]
    cells = (np.unravel_index(flat, pairs.shape) for flat in order)
    rows = tuple((first[i], second[j], float(pairs[i, j])) for i, j in cells)
    # Relative to the mean, so that links differ even if all pairs contribute about the same.
    above = pairs - max(float(pairs.mean()), 0.0)
    share = np.clip(above / max(float(above.max()), 1e-9), 0, 1)
    parts: list[doc.DocumentPart] = [
        doc.Paragraph(f"Cosine similarity {similarity.cosine:.4f}; sum over all pairs of words: {pairs.sum():.4f}."),
        doc.Table(("first sentence", "second sentence", "contribution"), rows, "Largest contributions"),
        doc.Links(
            "Largest contributions", first, second, share, "first sentence", "second sentence", min_weight=0.1,
            description="The strength of a line is the contribution of its pair above the average of all pairs.",
        ),
        doc.Matrix("pairs", tuple(map(tuple, pairs.tolist())), first, second, "first", "second", shaded=True,
               description="The sum of all cells is the cosine similarity."),
    ]  # fmt: skip
    title = f"{similarity.first.text} / {similarity.second.text}"
    return doc.Document(title, tuple(parts)).with_note(similarity.note)
