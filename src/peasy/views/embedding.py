"""PCA map of embedding vectors, and the nearest neighbours by cosine similarity in full dimension."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.views.document import Cell, Document, DocumentPart, Paragraph, Plane, Table

NUM_NEIGHBOURS = 5
MAX_POINTS = 2_000
"""Maximum number of points on one map; the document notes if more were given."""


def embedding_document(
    title: str,
    names: Sequence[str],
    vectors: np.ndarray,
    groups: Sequence[str] = (),
    num_neighbours: int = NUM_NEIGHBOURS,
) -> Document:
    """Document with the map and a table of nearest neighbours."""
    plane, explained = embedding_map(title, names, vectors, groups, num_neighbours)
    near = nearest_neighbours(np.asarray(vectors, dtype=float)[:MAX_POINTS], num_neighbours)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (names[index], ", ".join(f"{names[other]} {cosine:.2f}" for other, cosine in neighbours))
        for index, neighbours in enumerate(near)
    )
    dims = np.shape(vectors)[1]
    note = (
        f"The map shows {explained:.0%} of the variance; neighbours are by cosine similarity in all {dims} dimensions."
    )
    parts: list[DocumentPart] = [plane, Paragraph(note, "note"), Table(("", "nearest"), rows, "Nearest neighbours")]
    if len(names) > MAX_POINTS:
        parts.append(Paragraph(f"Only the first {MAX_POINTS:,} of {len(names):,} are drawn.", "note"))
    return Document(title, tuple(parts))


def embedding_map(
    title: str,
    names: Sequence[str],
    vectors: np.ndarray,
    groups: Sequence[str] = (),
    num_neighbours: int = NUM_NEIGHBOURS,
) -> tuple[Plane, float]:
    """Return the map and its share of explained variance."""
    vectors = np.asarray(vectors, dtype=float)
    if vectors.ndim != 2 or len(vectors) != len(names):
        raise InvalidInput(
            f"{len(names)} names for vectors of shape {vectors.shape}.", hint="Give one vector for each name."
        )
    vectors, names = vectors[:MAX_POINTS], names[:MAX_POINTS]
    coordinates, explained = pca_2d(vectors)
    near = tuple(tuple(other for other, _ in neighbours) for neighbours in nearest_neighbours(vectors, num_neighbours))
    points = tuple((name, float(x), float(y)) for name, (x, y) in zip(names, coordinates, strict=True))
    axes = ("first principal component", "second principal component")
    return Plane(title, points, *axes, groups=tuple(groups[: len(names)]), neighbours=near), explained


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


def nearest_neighbours(vectors: np.ndarray, count: int = NUM_NEIGHBOURS) -> list[list[tuple[int, float]]]:
    """Return the nearest other vectors of each vector, with their cosine similarity."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : max(min(count, len(vectors) - 1), 0)]
    return [[(int(other), float(cosines[index, other])) for other in row] for index, row in enumerate(order)]
