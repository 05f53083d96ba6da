"""Vectors on a map: their two directions of most difference, and who is nearest to whom in all of them."""

from collections.abc import Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.views.document import Cell, Document, Paragraph, Part, Plane, Table

NEAREST = 5
MOST_POINTS = 2_000
"""More points than this on one map are a cloud; the first so many are drawn, and the page says so."""


def embedding_document(
    title: str, names: Sequence[str], vectors: np.ndarray, groups: Sequence[str] = (), nearest: int = NEAREST
) -> Document:
    """The map, and the neighbours of each point as a table."""
    plane, kept = embedding_map(title, names, vectors, groups, nearest)
    near = nearest_points(np.asarray(vectors, dtype=float)[:MOST_POINTS], nearest)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (names[place], ", ".join(f"{names[other]} {cosine:.2f}" for other, cosine in line))
        for place, line in enumerate(near)
    )
    said = f"Two directions hold {kept:.0%} of the differences; neighbours are by cosine in all {np.shape(vectors)[1]}."
    parts: list[Part] = [plane, Paragraph(said, "note"), Table(("", "nearest"), rows, "Neighbours")]
    if len(names) > MOST_POINTS:
        parts.append(Paragraph(f"Drawn are the first {MOST_POINTS:,} of {len(names):,}.", "note"))
    return Document(title, tuple(parts))


def embedding_map(
    title: str, names: Sequence[str], vectors: np.ndarray, groups: Sequence[str] = (), nearest: int = NEAREST
) -> tuple[Plane, float]:
    """The map itself, and which share of all differences it shows."""
    vectors = np.asarray(vectors, dtype=float)
    if vectors.ndim != 2 or len(vectors) != len(names):
        raise InvalidInput(f"{len(names)} names for vectors of shape {vectors.shape}.", hint="One row for each name.")
    vectors, names = vectors[:MOST_POINTS], names[:MOST_POINTS]
    places, kept = principal_plane(vectors)
    near = tuple(tuple(other for other, _ in line) for line in nearest_points(vectors, nearest))
    points = tuple((name, float(x), float(y)) for name, (x, y) in zip(names, places, strict=True))
    axes = ("first principal direction", "second principal direction")
    return Plane(title, points, *axes, groups=tuple(groups[: len(names)]), neighbours=near), kept


def principal_plane(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Where vectors lie on their two directions of most variance (PCA), and the share of variance that is there.

    >>> places, share = principal_plane(np.array([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    >>> places.shape, round(share, 2)
    ((3, 2), 1.0)
    """
    centred = vectors - vectors.mean(axis=0, keepdims=True)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    # A direction and its opposite are the same to the mathematics: the largest part of each is made positive.
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    directions = directions * np.where(signs == 0, 1, signs)[:, None]
    places = centred @ directions[:2].T
    variance = float((sizes**2).sum())
    padded = np.zeros((len(vectors), 2))
    padded[:, : places.shape[1]] = places
    return padded, float((sizes[:2] ** 2).sum()) / variance if variance > 0 else 1.0


def nearest_points(vectors: np.ndarray, count: int = NEAREST) -> list[list[tuple[int, float]]]:
    """For each vector the others that point most into the same direction, with their cosine."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : max(min(count, len(vectors) - 1), 0)]
    return [[(int(other), float(cosines[place, other])) for other in line] for place, line in enumerate(order)]
