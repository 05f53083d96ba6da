"""Word vectors of an example as arrows in a plane, with the projection of one onto another."""

from collections.abc import Iterator

import numpy as np

from peasy.errors import InvalidInput
from peasy.views.document import Arithmetic, DocumentPart, Heading, Paragraph, Plane
from peasy.worked.arithmetic import find_index
from peasy.worked.label import token_label
from peasy.worked.number import format_number, format_operand
from peasy.worked.solver import WorkedExample


def word_vectors_plot(worked: WorkedExample) -> Iterator[DocumentPart]:
    """Yield the plot of two features if the example names two, with the projection if it names two words."""
    example = worked.example
    if len(example.plot_features) == 2 and example.rows is not None:
        x, y = (find_index(feature, example.features, "feature") for feature in example.plot_features)
        points = [(token_label(token), row[x], row[y]) for token, row in zip(worked.tokens, example.rows, strict=True)]
        lines: tuple[tuple[float, float, float, float], ...] = ()
        yield Heading("Word vectors")
        if example.project:
            foot, explanation = _projection(worked)
            moved = points[find_index(example.project[0], worked.tokens, "word")]
            points.append((f"{moved[0]} on {token_label(example.project[1])}", float(foot[x]), float(foot[y])))
            lines = ((moved[1], moved[2], float(foot[x]), float(foot[y])),)
            yield from explanation
        shown = tuple(point for point in points if point[1] or point[2])
        yield Plane("Words", shown, example.plot_features[0], example.plot_features[1], arrows=True, lines=lines)
        left_out = [point[0] for point in points if not (point[1] or point[2])]
        if left_out:
            yield Paragraph(f"At the origin, with neither feature: {', '.join(left_out)}.", "note")


def _projection(worked: WorkedExample) -> tuple[np.ndarray, list[DocumentPart]]:
    """Return the projection of the first word onto the second, and its arithmetic."""
    names = worked.example.project
    if len(names) != 2:
        raise InvalidInput("project must name two words: the one to project, and the one to project onto.")
    x, y = (np.asarray(worked.example.rows)[find_index(name, worked.tokens, "word")] for name in names)
    dot, square = float(x @ y), float(y @ y)
    if square == 0:
        raise InvalidInput(f'"{token_label(names[1])}" is the zero vector: nothing can be projected onto it.')
    factor = dot / square
    products = " + ".join(f"{format_operand(a)}·{format_operand(b)}" for a, b in zip(x, y, strict=True))
    squares = " + ".join(f"{format_operand(b)}^2" for b in y)
    lines = (
        f"x · y: {products} = {format_number(dot)}",
        f"y · y: {squares} = {format_number(square)}",
        f"c: {format_number(dot)} / {format_number(square)} = {format_number(factor)}",
        f"c·y: [{', '.join(format_number(factor * b) for b in y)}]",
    )
    first, second = map(token_label, names)
    sentence = Paragraph(f"The projection of {first} onto {second} is c·{second}; the remainder is orthogonal to it.")
    return factor * y, [sentence, Arithmetic(f"{first} (x) projected onto {second} (y)", lines)]
