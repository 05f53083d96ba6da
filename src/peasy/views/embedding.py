"""Embedding vectors as documents: PCA maps, nearest neighbours by cosine similarity, cosines of texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peasy.errors import InvalidInput
from peasy.inspection.results import Similarity
from peasy.views import document as doc

_AXES = ("first principal component", "second principal component")
_NUM_NEIGHBOURS = 5
_MAX_POINTS = 2_000
"""Maximum number of points on one map; the document notes if more were given."""
_MAX_SHOWN = 24
"""Maximum number of rows and columns shown."""
_TOP_PAIRS = 8


def embedding_map(
    title: str,
    names: Sequence[str],
    vectors: np.ndarray,
    groups: Sequence[str] = (),
    num_neighbours: int = _NUM_NEIGHBOURS,
) -> tuple[doc.Plane, float]:
    """Return the map and its share of explained variance."""
    vectors = np.asarray(vectors, dtype=float)
    if vectors.ndim != 2 or len(vectors) != len(names):
        message = f"{len(names)} names for vectors of shape {vectors.shape}."
        raise InvalidInput(message, hint="Give one vector for each name.")
    vectors, names = vectors[:_MAX_POINTS], names[:_MAX_POINTS]
    coordinates, explained = pca_2d(vectors)
    near = tuple(tuple(other for other, _ in neighbours) for neighbours in nearest_neighbours(vectors, num_neighbours))
    points = tuple((name, float(x), float(y)) for name, (x, y) in zip(names, coordinates, strict=True))
    return doc.Plane(title, points, *_AXES, groups=tuple(groups[: len(names)]), neighbours=near), explained


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


@dataclass(frozen=True)
class MapPoint:
    """Point of a semantic map: a text or a word. `neighbours` are (index, cosine), nearest first.

    `kind` is sentence, document or word; `document_index` the index of the document that contains a sentence.
    """

    name: str
    x: float
    y: float
    group: str
    kind: str = "sentence"
    document_index: int = 0
    neighbours: tuple[tuple[int, float], ...] = ()


def _map_figure(title: str, points: tuple[MapPoint, ...]) -> doc.Plane:
    coordinates = tuple((point.name, point.x, point.y) for point in points)
    near = tuple(tuple(other for other, _ in point.neighbours) for point in points)
    return doc.Plane(title, coordinates, *_AXES, groups=tuple(point.group for point in points), neighbours=near)


def text_map_document(model: str, points: tuple[MapPoint, ...], explained_variance: float, count: int) -> doc.Document:
    """Document with the map, its explained variance, and the nearest neighbours."""
    shown = f"{model}: {count} points. The map shows {explained_variance:.0%} of the variance"
    note = doc.Paragraph(f"{shown}; neighbours are by cosine similarity in full dimension.", "note")
    rows = tuple((point.name, point.group, _format_neighbours(points, point)) for point in points)
    neighbours = doc.Table(("", "cluster", "nearest"), rows, "Neighbours")
    return doc.Document("Texts by meaning", (_map_figure("Texts", points), note, neighbours))


def word_map_document(
    model: str, before: tuple[MapPoint, ...], after: tuple[MapPoint, ...], shown: tuple[float, float],
    unknown_words: tuple[str, ...], description: str,
) -> doc.Document:  # fmt: skip
    """Document with the maps before and after training (`shown`: their explained variance), and nearest neighbours."""
    rows = tuple(
        (old.name, _format_neighbours(before, old), _format_neighbours(after, new))
        for old, new in zip(before, after, strict=True)
    )
    parts: list[doc.DocumentPart] = [
        doc.Heading("Before training"),
        _map_figure("Before training", before),
        doc.Heading("After training"),
        _map_figure("After training", after),
        doc.Paragraph(f"{description} The maps show {shown[0]:.0%} and {shown[1]:.0%} of the variance.", "note"),
        doc.Table(("word", "nearest before", "nearest after"), rows, "Neighbours"),
    ]
    if unknown_words:
        parts.append(doc.Paragraph(f"Not in the vocabulary: {', '.join(unknown_words)}.", "note"))
    return doc.Document(f"Words of {model}", tuple(parts))


def _format_neighbours(points: tuple[MapPoint, ...], point: MapPoint) -> str:
    return ", ".join(f"{points[other].name} {cosine:.2f}" for other, cosine in point.neighbours)


def vectors_document(
    name: str, texts: tuple[str, ...], vectors: np.ndarray, cosines: np.ndarray, pooling: str
) -> doc.Document:
    """Document with the cosine similarity matrix; for a single text, its vector."""
    note = f"{doc.pluralize(len(texts), 'text')}, {vectors.shape[1]} dimensions, pooling {pooling}, model {name}."
    if len(texts) == 1:
        rows = tuple((str(index), float(value)) for index, value in enumerate(vectors[0][:_MAX_SHOWN]))
        figure: doc.Matrix | doc.Table = doc.Table(("dimension", "value"), rows)
        count, rest, title = len(vectors[0]), f"{vectors.shape[1]}; --json has all.", doc.short_title(texts[0])
    else:
        labels = tuple(f"{index} {doc.shorten(text, 28)}" for index, text in enumerate(texts[:_MAX_SHOWN], 1))
        columns = tuple(map(str, range(1, len(labels) + 1)))
        values = tuple(tuple(float(cell) for cell in row[:_MAX_SHOWN]) for row in cosines[:_MAX_SHOWN])
        description = "1: same direction; 0: orthogonal."
        figure = doc.Matrix(
            "Cosine similarity", values, labels, columns, "text", "text", shaded=True, description=description
        )
        count, rest, title = len(texts), f"{len(texts):,}; --out vectors.npy has all.", "Similarity of texts"
    cut = [doc.Paragraph(f"The first {_MAX_SHOWN} of {rest}", "note")] * (count > _MAX_SHOWN)
    return doc.Document(title, (figure, *cut, doc.Paragraph(note, "note")), decimals=4 if len(texts) == 1 else 2)


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
    return doc.Document(f"{similarity.first.text} / {similarity.second.text}", tuple(parts))
