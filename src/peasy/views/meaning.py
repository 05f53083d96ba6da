"""Semantic map as a document: points with clusters, and a table of nearest neighbours."""

from dataclasses import dataclass

from peasy.views.document import Cell, Document, Heading, Paragraph, Part, Plane, Table

_AXES = ("first principal component", "second principal component")


@dataclass(frozen=True)
class Point:
    """Point of a semantic map: a text or a word. `near` are its nearest neighbours: (index, cosine), nearest first.

    `kind` is sentence, document or word; `owner` the index of the document that contains a sentence.
    """

    name: str
    x: float
    y: float
    group: str
    kind: str = "sentence"
    owner: int = 0
    near: tuple[tuple[int, float], ...] = ()


def plane_of(title: str, points: tuple[Point, ...]) -> Plane:
    """Return the points as a scatter plot."""
    coordinates = tuple((point.name, point.x, point.y) for point in points)
    near = tuple(tuple(other for other, _ in point.near) for point in points)
    return Plane(title, coordinates, *_AXES, groups=tuple(point.group for point in points), neighbours=near)


def neighbours(points: tuple[Point, ...], title: str = "Neighbours") -> Table:
    """Table of nearest neighbours in full dimension, not only in the two of the map."""
    rows: tuple[tuple[Cell, ...], ...] = tuple((point.name, point.group, _near(points, point)) for point in points)
    return Table(("", "cluster", "nearest"), rows, title)


def map_document(model: str, points: tuple[Point, ...], kept: float, count: int) -> Document:
    """Document with the map, its explained variance, and the nearest neighbours."""
    note = (
        f"{model}: {count} points. The map shows {kept:.0%} of the variance; "
        "neighbours are by cosine similarity in full dimension."
    )
    return Document("Texts by meaning", (plane_of("Texts", points), Paragraph(note, "note"), neighbours(points)))


def words_document(
    model: str,
    before: tuple[Point, ...],
    after: tuple[Point, ...],
    kept: tuple[float, float],
    unknown: tuple[str, ...],
    says: str,
) -> Document:
    """Document with the maps before and after training, and one table of nearest neighbours."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (old.name, _near(before, old), _near(after, new)) for old, new in zip(before, after, strict=True)
    )
    parts: list[Part] = [
        Heading("Before training"),
        plane_of("Before training", before),
        Heading("After training"),
        plane_of("After training", after),
        Paragraph(f"{says} The maps show {kept[0]:.0%} and {kept[1]:.0%} of the variance.", "note"),
        Table(("word", "nearest before", "nearest after"), rows, "Neighbours"),
    ]
    if unknown:
        parts.append(Paragraph(f"Not in the vocabulary: {', '.join(unknown)}.", "note"))
    return Document(f"Words of {model}", tuple(parts))


def _near(points: tuple[Point, ...], point: Point) -> str:
    return ", ".join(f"{points[other].name} {cosine:.2f}" for other, cosine in point.near)
