"""Custom elements of interactive figures: tag name and JSON data of each; render/html.py writes the markup.

The modules of `render/web` draw from this data: printable labels, and quantised numbers with their error.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from peasy.render import sanitize
from peasy.render.quantise import exact_decimals, pack_float32, quantise
from peasy.views.document import DocumentPart, Links, Maps, Plane, Vectors

ELEMENT_TAGS: dict[type, str] = {Maps: "peasy-maps", Links: "peasy-links", Plane: "peasy-plane"}

MAX_MAP_CELLS = 24_000_000
"""Maximum number of cells of all maps of one element; above it the page has only the table and the static figure."""


MAX_VECTOR_NUMBERS = 400_000
"""Maximum size of queries and keys of one element; above it the page shows the command for a cell's arithmetic."""


def element_name(part: DocumentPart) -> str | None:
    """Return the tag of the custom element for this part; None if it has only a static figure."""
    if isinstance(part, Plane) and not part.neighbours:
        return None
    if isinstance(part, Maps) and part.values.size > MAX_MAP_CELLS:
        return None
    return ELEMENT_TAGS.get(type(part))


def element_data(part: DocumentPart, decimals: int) -> dict[str, Any]:
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
        "title": sanitize.one_line(maps.title),
        "description": sanitize.one_line(maps.description),
        "rows": _labels(maps.rows),
        "columns": _labels(maps.columns),
        "down": _labels(maps.down),
        "across": _labels(maps.across),
        "rowAxis": sanitize.one_line(maps.row_axis),
        "columnAxis": sanitize.one_line(maps.column_axis),
        "downAxis": sanitize.one_line(maps.down_axis),
        "acrossAxis": sanitize.one_line(maps.across_axis),
        "chosen": list(maps.selected),
        "selfAttention": maps.rows == maps.columns,
        "tileSize": maps.tile_size,
        "reduction": {"mean": "mean", "max": "maximum"}.get(maps.reduction, sanitize.one_line(maps.reduction)),
        "numbers": numbers,
        "decimals": exact_decimals(numbers["error"], decimals),
        "exact": None,
        "vectors": _vectors(maps.vectors),
        "command": sanitize.one_line(maps.command),
    }
    if maps.exact_rows is not None:
        data["exact"] = {"positions": list(maps.exact_rows.positions), "numbers": quantise(maps.exact_rows.values)}
    return data


def _vectors(vectors: Vectors | None) -> dict[str, Any] | None:
    if vectors is None or vectors.query.size + vectors.key.size > MAX_VECTOR_NUMBERS:
        return None
    query, key = (pack_float32(matrix) for matrix in (vectors.query, vectors.key))
    return {"query": query, "key": key, "scale": vectors.scale, "softcap": vectors.softcap}


def _links(links: Links, decimals: int) -> dict[str, Any]:
    numbers = quantise(links.weights)
    return {
        "title": sanitize.one_line(links.title),
        "description": sanitize.one_line(links.description),
        "left": _labels(links.left),
        "right": _labels(links.right),
        "leftAxis": sanitize.one_line(links.left_axis),
        "rightAxis": sanitize.one_line(links.right_axis),
        "ribbons": links.ribbons,
        "minWeight": links.min_weight,
        "gold": [list(pair) for pair in links.gold],
        "numbers": numbers,
        "decimals": exact_decimals(numbers["error"], decimals),
    }


def _labels(words: Sequence[str]) -> list[str]:
    return [sanitize.token_label(word) for word in words]
