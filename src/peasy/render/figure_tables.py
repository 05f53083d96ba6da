"""Figures as labelled tables: the text alternative of every plot, diagram and attention figure."""

from collections.abc import Iterator

import numpy as np

from peasy.views import document as doc
from peasy.views.document import CacheFigure, Cell, Curves, Diagram, Document, Links, Maps, Matrix, Plane, Table

Plot = Plane | Curves | Diagram
Figure = Maps | Links | CacheFigure
PlainPart = doc.Heading | doc.Paragraph | doc.Formula | doc.Arithmetic | Matrix | Table

_MAX_LINKS = 400
"""Maximum number of links listed, strongest first."""

_REDUCTION_NAMES = {"mean": "the mean", "max": "the largest"}


def plain_parts(document: Document) -> Iterator[PlainPart]:
    """Yield the parts of a document, with its figures as tables."""
    for part in document.parts:
        yield from [part] if isinstance(part, PlainPart) else tables_of(part)


def tables_of(figure: Plot | Figure) -> list[Matrix | Table]:
    """Return a figure as labelled tables."""
    match figure:
        case Maps():
            return [chosen_matrix(figure), *([_maps_table(figure)] if figure.count > 1 else [])]
        case Links():
            known = set(figure.gold)
            columns = (figure.left_axis or "from", figure.right_axis or "to", "weight", "known")[: 4 if known else 3]
            links = tuple(
                (figure.left[a], figure.right[b], weight, "yes" if (a, b) in known else "")[: len(columns)]
                for a, b, weight in figure.strongest(_MAX_LINKS)
            )
            return [Table(columns, links, figure.title)]
        case CacheFigure():
            rows: list[tuple[Cell, ...]] = [
                (str(step), token, str(reused), str(computed), str(without))
                for step, (token, reused, computed, without) in enumerate(cache_rows(figure), start=1)
            ]
            computed_total, total = sum(computed for _, computed in figure.steps), sum(map(sum, figure.steps))
            rows.append(("all", "", str(total - computed_total), str(computed_total), str(total)))
            return [Table(("step", "up to", "reused", "computed", "without a cache"), tuple(rows), figure.title)]
        case _:
            return [plot_table(figure)]


def plot_table(figure: Plot) -> Table:
    """Return a plot or diagram as a table of its named points or boxes."""
    if isinstance(figure, Diagram):
        walk = ((f"{'– ' * depth}{node.times}{node.name}", node) for depth, node in figure.walk())
        boxes = tuple((name, node.description, node.note) for name, node in walk)
        return Table(("part", "what it is", "size"), boxes, figure.title)
    columns = ("", figure.x_axis or "x", figure.y_axis or "y")
    if isinstance(figure, Plane):
        return Table(columns, figure.points, figure.title)
    return Table(columns, tuple((name, x, y) for name, line in figure.lines for x, y in line), figure.title)


def chosen_matrix(maps: Maps) -> Matrix:
    """Return the chosen map as a labelled matrix; for tiled maps its exact rows if there are any."""
    name, description = maps.name(*maps.selected) or maps.title, maps.description
    values, rows, columns = maps.values[maps.selected], maps.rows, maps.columns
    if maps.exact_rows is not None:
        values = maps.exact_rows.values[maps.selected]
        rows = tuple(f"{p} {maps.rows[p]}" if p < len(maps.rows) else str(p) for p in maps.exact_rows.positions)
    elif maps.tile_size > 1:
        tile = maps.tile_size
        rows, columns = (
            tuple(_label(labels, index, tile) for index in range(-(-len(labels) // tile)))
            for labels in (maps.rows, maps.columns)
        )
        description = f"{description} {tile_notice(maps)}".strip()
    numbers = np.asarray(values, float).tolist()
    cells = tuple(tuple(None if number != number else number for number in row) for row in numbers)  # NaN: empty
    return Matrix(name, cells, rows, columns, maps.row_axis, maps.column_axis, description=description, shaded=True)


def tile_notice(maps: Maps) -> str:
    """Return the sentence that explains a cell of a tiled map."""
    reduction = _REDUCTION_NAMES.get(maps.reduction, maps.reduction)
    return f"Each cell is {reduction} of {maps.tile_size} by {maps.tile_size} tokens." if maps.tile_size > 1 else ""


def cache_rows(cache: CacheFigure) -> Iterator[tuple[str, int, int, int]]:
    """Yield (last token of the step, reused, computed, computed without a cache)."""
    for reused, computed in cache.steps:
        end = reused + computed
        yield cache.tokens[end - 1] if 0 < end <= len(cache.tokens) else "", reused, computed, end


def _maps_table(maps: Maps) -> Table:
    """Return one row per map: its largest number and the tokens of that cell."""
    rows = []
    for down, across in np.ndindex(len(maps.down), len(maps.across)):
        values = np.asarray(maps.values[down, across], dtype=float)
        if not np.isfinite(values).any():
            continue
        row, column = np.unravel_index(np.nanargmax(values), values.shape)
        tokens = (_label(maps.rows, int(row), maps.tile_size), _label(maps.columns, int(column), maps.tile_size))
        rows.append((maps.down[down], maps.across[across], float(values[row, column]), *tokens))
    columns = (maps.down_axis, maps.across_axis, "largest", f"at {maps.row_axis}", maps.column_axis)
    return Table(columns, tuple(rows), f"{maps.title}: maximum of each map" if maps.title else "Maximum of each map")


def _label(labels: tuple[str, ...], index: int, tile: int) -> str:
    if tile > 1:
        return f"{index * tile}–{min((index + 1) * tile, len(labels)) - 1}"
    return labels[index] if index < len(labels) else str(index)
