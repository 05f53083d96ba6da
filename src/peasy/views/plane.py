"""The word plane of an example: words as arrows, and one of them projected onto another."""

from collections.abc import Iterator

import numpy as np

from peasy.errors import InvalidInput
from peasy.views.document import Arithmetic, Heading, Paragraph, Part, Plane
from peasy.worked.arithmetic import place
from peasy.worked.label import visible
from peasy.worked.number import bracket, show
from peasy.worked.work import Worked


def word_plane(worked: Worked) -> Iterator[Part]:
    """The picture of two features, where the example names two; with the projection, where it names two words."""
    example = worked.example
    if len(example.plane) == 2 and example.rows is not None:
        x, y = (place(feature, example.features, "feature") for feature in example.plane)
        points = [(visible(token), row[x], row[y]) for token, row in zip(worked.tokens, example.rows, strict=True)]
        lines: tuple[tuple[float, float, float, float], ...] = ()
        yield Heading("The word plane")
        if example.project:
            foot, said = _projection(worked)
            moved = points[place(example.project[0], worked.tokens, "word")]
            points.append((f"{moved[0]} on {visible(example.project[1])}", float(foot[x]), float(foot[y])))
            lines = ((moved[1], moved[2], float(foot[x]), float(foot[y])),)
            yield from said
        shown = tuple(point for point in points if point[1] or point[2])
        yield Plane("Words", shown, example.plane[0], example.plane[1], arrows=True, lines=lines)
        left_out = [point[0] for point in points if not (point[1] or point[2])]
        if left_out:
            yield Paragraph(f"At the origin, because they have neither: {', '.join(left_out)}.", "note")


def _projection(worked: Worked) -> tuple[np.ndarray, list[Part]]:
    """Where the first word falls on the line of the second, and the arithmetic of it."""
    names = worked.example.project
    if len(names) != 2:
        raise InvalidInput("project names two words: the one that is projected, and the one it falls on.")
    x, y = (np.asarray(worked.example.rows)[place(name, worked.tokens, "word")] for name in names)
    dot, square = float(x @ y), float(y @ y)
    if square == 0:
        raise InvalidInput(f'"{visible(names[1])}" has length zero, so nothing can be projected onto it.')
    factor = dot / square
    products = " + ".join(f"{bracket(a)}·{bracket(b)}" for a, b in zip(x, y, strict=True))
    squares = " + ".join(f"{bracket(b)}^2" for b in y)
    lines = (
        f"x · y: {products} = {show(dot)}",
        f"y · y: {squares} = {show(square)}",
        f"c: {show(dot)} / {show(square)} = {show(factor)}",
        f"c·y: [{', '.join(show(factor * b) for b in y)}]",
    )
    first, second = map(visible, names)
    said = Paragraph(
        f"{first} falls on the line of {second} at c·{second}; what is left over is at a right angle to it."
    )
    return factor * y, [said, Arithmetic(f"{first} (x) projected onto {second} (y)", lines)]
