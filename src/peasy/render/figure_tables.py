"""Tables of the attention figures (maps, links, cache): the text alternative of every figure."""

from collections.abc import Iterator

import numpy as np

from peasy.views.document import CacheFigure, Cell, Links, Maps, Matrix, Table

Figure = Maps | Links | CacheFigure

MAX_LINKS = 400
"""Maximum number of links listed, strongest first."""

REDUCTION_NAMES = {"mean": "the mean", "max": "the largest"}


def tables_of(figure: Figure) -> list[Matrix | Table]:
    """Return a figure as labelled tables."""
    if isinstance(figure, CacheFigure):
        return [_cache_table(figure)]
    if isinstance(figure, Links):
        return [_links_table(figure)]
    chosen = chosen_matrix(figure)
    return [chosen, _maps_table(figure)] if figure.count > 1 else [chosen]


def chosen_matrix(maps: Maps) -> Matrix:
    """Return the chosen map as a labelled matrix; for tiled maps its exact rows if there are any."""
    name, description = maps.name(*maps.selected) or maps.title, maps.description
    values, rows, columns = maps.values[maps.selected], maps.rows, maps.columns
    if maps.exact_rows is not None:
        values = maps.exact_rows.values[maps.selected]
        rows = tuple(_numbered_label(maps.rows, index) for index in maps.exact_rows.positions)
    elif maps.tile_size > 1:
        rows, columns = (_tile_labels(maps.tile_size, len(labels)) for labels in (maps.rows, maps.columns))
        description = f"{description} {tile_notice(maps)}".strip()
    return Matrix(
        name, to_cells(values), rows, columns, maps.row_axis, maps.column_axis, description=description, shaded=True
    )


def tile_notice(maps: Maps) -> str:
    """Return the sentence that explains a cell of a tiled map."""
    reduction = REDUCTION_NAMES.get(maps.reduction, maps.reduction)
    return f"Each cell is {reduction} of {maps.tile_size} by {maps.tile_size} tokens." if maps.tile_size > 1 else ""


def to_cells(values: np.ndarray) -> tuple[tuple[Cell, ...], ...]:
    """Convert an array to document cells; NaN becomes None."""
    return tuple(
        tuple(None if number != number else number for number in row) for row in np.asarray(values, float).tolist()
    )


def cache_rows(cache: CacheFigure) -> Iterator[tuple[str, int, int, int]]:
    """Yield (last token of the step, reused, computed, computed without a cache)."""
    for reused, computed in cache.steps:
        end = reused + computed
        yield cache.tokens[end - 1] if 0 < end <= len(cache.tokens) else "", reused, computed, end


def _cache_table(cache: CacheFigure) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (str(step), token, str(reused), str(computed), str(without))
        for step, (token, reused, computed, without) in enumerate(cache_rows(cache), start=1)
    ]
    computed_total, total = sum(computed for _, computed in cache.steps), sum(map(sum, cache.steps))
    rows.append(("all", "", str(total - computed_total), str(computed_total), str(total)))
    return Table(("step", "up to", "reused", "computed", "without a cache"), tuple(rows), cache.title)


def _links_table(links: Links) -> Table:
    known = set(links.gold)
    strongest = links.strongest(MAX_LINKS)
    columns = (links.left_axis or "from", links.right_axis or "to", "weight", *(("known",) if known else ()))
    rows = tuple(
        (links.left[a], links.right[b], weight, *((("yes" if (a, b) in known else ""),) if known else ()))
        for a, b, weight in strongest
    )
    return Table(columns, rows, links.title)


def _maps_table(maps: Maps) -> Table:
    """Return one row per map: its largest number and the tokens of that cell."""
    rows = []
    for down, across in np.ndindex(len(maps.down), len(maps.across)):
        values = np.asarray(maps.values[down, across], dtype=float)
        if not np.isfinite(values).any():
            continue
        row, column = np.unravel_index(np.nanargmax(values), values.shape)
        row_start: tuple[Cell, ...] = (maps.down[down], maps.across[across], float(values[row, column]))
        rows.append(
            (
                *row_start,
                _row_label(maps.rows, int(row), maps.tile_size),
                _row_label(maps.columns, int(column), maps.tile_size),
            )
        )
    columns = (maps.down_axis, maps.across_axis, "largest", f"at {maps.row_axis}", maps.column_axis)
    return Table(columns, tuple(rows), f"{maps.title}: maximum of each map" if maps.title else "Maximum of each map")


def _row_label(labels: tuple[str, ...], index: int, tile: int) -> str:
    if tile > 1:
        return f"{index * tile}–{min((index + 1) * tile, len(labels)) - 1}"
    return labels[index] if index < len(labels) else str(index)


def _tile_labels(tile: int, count: int) -> tuple[str, ...]:
    return tuple(f"{start}–{min(start + tile, count) - 1}" for start in range(0, count, tile))


def _numbered_label(labels: tuple[str, ...], position: int) -> str:
    return f"{position} {labels[position]}" if position < len(labels) else str(position)
