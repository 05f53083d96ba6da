"""Vectors on a map as a document: points with their clusters, and the neighbours of each as a table."""

from dataclasses import dataclass

from peasy.views.document import Cell, Document, Heading, Paragraph, Part, Plane, Table

_AXES = ("first principal direction", "second principal direction")


@dataclass(frozen=True)
class Point:
    """A text or a word on a map. `near` are the nearest others by cosine: (place, cosine), nearest first.

    `kind` is sentence, document or word; `owner` the number of the document a sentence stands in.
    """

    name: str
    x: float
    y: float
    group: str
    kind: str = "sentence"
    owner: int = 0
    near: tuple[tuple[int, float], ...] = ()


def plane_of(title: str, points: tuple[Point, ...]) -> Plane:
    """The points as a picture."""
    places = tuple((each.name, each.x, each.y) for each in points)
    near = tuple(tuple(other for other, _ in each.near) for each in points)
    return Plane(title, places, *_AXES, groups=tuple(each.group for each in points), neighbours=near)


def neighbours(points: tuple[Point, ...], title: str = "Neighbours") -> Table:
    """Who is near whom, in all directions and not only in the two of the map."""
    rows: tuple[tuple[Cell, ...], ...] = tuple((each.name, each.group, _near(points, each)) for each in points)
    return Table(("", "cluster", "nearest"), rows, title)


def map_document(model: str, points: tuple[Point, ...], kept: float, count: int) -> Document:
    """The map, how much of the differences it holds, and the neighbours."""
    note = f"{model}: {count} points. The map holds {kept:.0%} of their differences; neighbours are by cosine in all."
    return Document("Texts by meaning", (plane_of("Texts", points), Paragraph(note, "note"), neighbours(points)))


def words_document(
    model: str,
    before: tuple[Point, ...],
    after: tuple[Point, ...],
    kept: tuple[float, float],
    unknown: tuple[str, ...],
    says: str,
) -> Document:
    """Both maps, and one table of neighbours before and after."""
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (then.name, _near(before, then), _near(after, now)) for then, now in zip(before, after, strict=True)
    )
    parts: list[Part] = [
        Heading("Before training"),
        plane_of("Before training", before),
        Heading("After training"),
        plane_of("After training", after),
        Paragraph(f"{says} The maps hold {kept[0]:.0%} and {kept[1]:.0%} of the differences.", "note"),
        Table(("word", "nearest before", "nearest after"), rows, "Neighbours"),
    ]
    if unknown:
        parts.append(Paragraph(f"Unknown to the model: {', '.join(unknown)}.", "note"))
    return Document(f"Words of {model}", tuple(parts))


def _near(points: tuple[Point, ...], point: Point) -> str:
    return ", ".join(f"{points[other].name} {cosine:.2f}" for other, cosine in point.near)
