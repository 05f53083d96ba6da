"""Custom elements (web components) of the interactive figures, with their data as JSON.

The modules of `render/web` draw from this data: printable labels, and quantised numbers with their error.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from peasy.render import glyph
from peasy.render.quantise import decimals_left, pack_exactly, quantise
from peasy.views.document import Links, Maps, Part, Plane, Vectors

NAMES: dict[type, str] = {Maps: "peasy-maps", Links: "peasy-links", Plane: "peasy-plane"}

MOST_CELLS = 24_000_000
"""Maximum number of cells of all maps of one element; above it the page has only the table and the static figure."""


MOST_VECTORS = 400_000
"""Maximum size of queries and keys of one element; above it the page shows the command for a cell's arithmetic."""


def element_name(part: Part) -> str | None:
    """Return the tag of the custom element for this part; None if it has only a static figure."""
    if isinstance(part, Plane) and not part.neighbours:
        return None
    if isinstance(part, Maps) and part.values.size > MOST_CELLS:
        return None
    return NAMES.get(type(part))


def element_data(part: Part, decimals: int) -> dict[str, Any]:
    """Return the data of the element as plain data."""
    match part:
        case Maps():
            return _maps(part, decimals)
        case Links():
            return _links(part, decimals)
        case Plane():
            finite = [index for index, (_, x, y) in enumerate(part.points) if np.isfinite(x) and np.isfinite(y)]
            new_index = {index: new for new, index in enumerate(finite)}  # only finite points are drawn
            neighbours = [
                [new_index[neighbour] for neighbour in part.neighbours[index] if neighbour in new_index]
                for index in finite
            ]
            return {"names": _labels([part.points[index][0] for index in finite]), "neighbours": neighbours}
    raise AssertionError(f"{type(part).__name__} has no element")


def _maps(maps: Maps, decimals: int) -> dict[str, Any]:
    numbers = quantise(maps.values)
    data = {
        "title": glyph.prose(maps.title),
        "says": glyph.prose(maps.says),
        "rows": _labels(maps.rows),
        "columns": _labels(maps.columns),
        "down": _labels(maps.down),
        "across": _labels(maps.across),
        "rowAxis": glyph.prose(maps.row_axis),
        "columnAxis": glyph.prose(maps.column_axis),
        "downAxis": glyph.prose(maps.down_axis),
        "acrossAxis": glyph.prose(maps.across_axis),
        "chosen": list(maps.chosen),
        "own": maps.rows == maps.columns,
        "tile": maps.tile,
        "reduced": {"mean": "mean", "max": "maximum"}.get(maps.reduced, glyph.prose(maps.reduced)),
        "numbers": numbers,
        "decimals": decimals_left(numbers["error"], decimals),
        "exact": None,
        "vectors": _vectors(maps.vectors),
        "command": glyph.prose(maps.command),
    }
    if maps.exact is not None:
        data["exact"] = {"places": list(maps.exact.places), "numbers": quantise(maps.exact.values)}
    return data


def _vectors(vectors: Vectors | None) -> dict[str, Any] | None:
    if vectors is None or vectors.query.size + vectors.key.size > MOST_VECTORS:
        return None
    query, key = (pack_exactly(matrix) for matrix in (vectors.query, vectors.key))
    return {"query": query, "key": key, "scale": vectors.scale, "softcap": vectors.softcap}


def _links(links: Links, decimals: int) -> dict[str, Any]:
    numbers = quantise(links.weights)
    return {
        "title": glyph.prose(links.title),
        "says": glyph.prose(links.says),
        "left": _labels(links.left),
        "right": _labels(links.right),
        "leftAxis": glyph.prose(links.left_axis),
        "rightAxis": glyph.prose(links.right_axis),
        "ribbons": links.ribbons,
        "least": links.least,
        "known": [list(pair) for pair in links.known],
        "numbers": numbers,
        "decimals": decimals_left(numbers["error"], decimals),
    }


def _labels(words: Sequence[str]) -> list[str]:
    return [glyph.label(word) for word in words]
