"""Semantic map as a document: points with clusters, and a table of nearest neighbours."""

from dataclasses import dataclass

from peasy.views.document import Cell, Document, DocumentPart, Heading, Paragraph, Plane, Table

_AXES = ("first principal component", "second principal component")


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


def map_figure(title: str, points: tuple[MapPoint, ...]) -> Plane:
    """Return the points as a scatter plot."""
    coordinates = tuple((point.name, point.x, point.y) for point in points)
    near = tuple(tuple(other for other, _ in point.neighbours) for point in points)
    return Plane(title, coordinates, *_AXES, groups=tuple(point.group for point in points), neighbours=near)


def neighbours_table(points: tuple[MapPoint, ...], title: str = "Neighbours") -> Table:
    """Table of nearest neighbours in full dimension, not only in the two of the map."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (point.name, point.group, _format_neighbours(points, point)) for point in points
    )
    return Table(("", "cluster", "nearest"), rows, title)


def text_map_document(model: str, points: tuple[MapPoint, ...], explained_variance: float, count: int) -> Document:
    """Document with the map, its explained variance, and the nearest neighbours."""
    note = (
        f"{model}: {count} points. The map shows {explained_variance:.0%} of the variance; "
        "neighbours are by cosine similarity in full dimension."
    )
    return Document(
        "Texts by meaning", (map_figure("Texts", points), Paragraph(note, "note"), neighbours_table(points))
    )


def word_map_document(
    model: str,
    before: tuple[MapPoint, ...],
    after: tuple[MapPoint, ...],
    explained_variance: tuple[float, float],
    unknown_words: tuple[str, ...],
    description: str,
) -> Document:
    """Document with the maps before and after training, and one table of nearest neighbours."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (old.name, _format_neighbours(before, old), _format_neighbours(after, new))
        for old, new in zip(before, after, strict=True)
    )
    parts: list[DocumentPart] = [
        Heading("Before training"),
        map_figure("Before training", before),
        Heading("After training"),
        map_figure("After training", after),
        Paragraph(
            f"{description} The maps show {explained_variance[0]:.0%} and {explained_variance[1]:.0%} of the variance.",
            "note",
        ),
        Table(("word", "nearest before", "nearest after"), rows, "Neighbours"),
    ]
    if unknown_words:
        parts.append(Paragraph(f"Not in the vocabulary: {', '.join(unknown_words)}.", "note"))
    return Document(f"Words of {model}", tuple(parts))


def _format_neighbours(points: tuple[MapPoint, ...], point: MapPoint) -> str:
    return ", ".join(f"{points[other].name} {cosine:.2f}" for other, cosine in point.neighbours)
