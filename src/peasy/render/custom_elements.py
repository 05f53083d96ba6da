"""Custom elements of interactive figures: tag name and JSON data of each; render/html.py writes the markup.

The modules of `render/web` draw from this data: printable labels, and numbers quantised to 8 or 16 bits between minimum
and maximum. The page shows the error of that and writes no more decimals than it allows; what it ranks is float32.
"""

import base64
import math
import zlib
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike

from peasy.render import sanitize
from peasy.views.document import DocumentPart, Links, Maps, Plane, Vectors

_ELEMENT_TAGS: dict[type, str] = {Maps: "peasy-maps", Links: "peasy-links", Plane: "peasy-plane"}

_MAX_MAP_CELLS = 24_000_000
"""Maximum number of cells of all maps of one element; above it the page has only the table and the static figure."""

_MAX_VECTOR_NUMBERS = 400_000
"""Maximum size of queries and keys of one element; above it the page shows the command for a cell's arithmetic."""

_NUM_TOP_KEYS = 8
"""Keys of each row that are stored as float32, for the list of the largest: quantised numbers would tie."""

_MAX_TWO_BYTE_SIZE = 1_000_000
"""Maximum size of an array with two bytes per number; larger arrays get one byte."""


def element_name(part: DocumentPart) -> str | None:
    """Return the tag of the custom element for this part; None if it has only a static figure."""
    if isinstance(part, Plane) and not part.neighbours:
        return None
    if isinstance(part, Maps) and part.values.size > _MAX_MAP_CELLS:
        return None
    return _ELEMENT_TAGS.get(type(part))


def element_data(part: DocumentPart, decimals: int) -> dict[str, object]:
    """Return the data of the element as plain data."""
    match part:
        case Maps():
            numbers, exact = quantise(part.values), part.exact_rows
            whole_rows = part.values if part.tile_size == 1 else None if exact is None else exact.values
            return {
                **_lines(title=part.title, description=part.description),
                **{name: _labels(getattr(part, name)) for name in ("rows", "columns", "down", "across")},
                **{
                    f"{side}Axis": sanitize.one_line(getattr(part, f"{side}_axis"))
                    for side in ("row", "column", "down", "across")
                },
                "chosen": list(part.selected),
                "selfAttention": part.rows == part.columns,
                "tileSize": part.tile_size,
                "reduction": {"mean": "mean", "max": "maximum"}.get(part.reduction, sanitize.one_line(part.reduction)),
                "numbers": numbers,
                "decimals": exact_decimals(numbers["error"], decimals),
                "exact": exact and {"positions": list(exact.positions), "numbers": quantise(exact.values)},
                "top": None if whole_rows is None else top_keys(whole_rows, decimals),
                "vectors": _vectors(part.vectors),
                "command": sanitize.one_line(part.command),
            }
        case Links():
            numbers = quantise(part.weights)
            return {
                **_lines(title=part.title, description=part.description),
                "left": _labels(part.left),
                "right": _labels(part.right),
                **_lines(leftAxis=part.left_axis, rightAxis=part.right_axis),
                "ribbons": part.ribbons,
                "minWeight": part.min_weight,
                "gold": [list(pair) for pair in part.gold],
                "numbers": numbers,
                "decimals": exact_decimals(numbers["error"], decimals),
            }
        case Plane():
            finite = [index for index, (_, x, y) in enumerate(part.points) if np.isfinite(x) and np.isfinite(y)]
            new_index = {index: new for new, index in enumerate(finite)}  # only finite points are drawn
            near = [[new_index[other] for other in part.neighbours[index] if other in new_index] for index in finite]
            return {"names": _labels([part.points[index][0] for index in finite]), "neighbours": near}
    raise AssertionError(f"{type(part).__name__} has no element")


def top_keys(values: np.ndarray, decimals: int = 4) -> dict[str, object]:
    """Return the keys with the largest numbers of each row, largest first, as float32; masked ones are NaN.

    >>> packed = top_keys(np.array([[0.2, 0.5, 0.3]]))
    >>> np.frombuffer(zlib.decompress(base64.b64decode(str(packed["keys"]))), "<u4").tolist()
    [1, 2, 0]
    """
    size = np.where(np.isfinite(values), np.abs(values), -1.0)
    count = min(_NUM_TOP_KEYS, values.shape[-1])
    found = np.sort(np.argpartition(-size, count - 1, axis=-1)[..., :count], axis=-1) if count else size.astype(int)
    order = np.argsort(-np.take_along_axis(size, found, axis=-1), axis=-1, kind="stable")
    keys = np.take_along_axis(found, order, axis=-1)
    numbers = np.take_along_axis(np.asarray(values), keys, axis=-1).astype("<f4")
    packed = {"keys": _deflate(keys.astype("<u4")), "values": _deflate(numbers)}
    return {"count": count, "decimals": decimals, **packed}


def _vectors(vectors: Vectors | None) -> dict[str, object] | None:
    if vectors is None or vectors.query.size + vectors.key.size > _MAX_VECTOR_NUMBERS:
        return None
    # As float32: these numbers are computed with.
    query, key = (np.asarray(matrix, dtype="<f4") for matrix in (vectors.query, vectors.key))
    packed = {n: {"shape": list(a.shape), "data": _deflate(a)} for n, a in (("query", query), ("key", key))}
    return {**packed, "scale": vectors.scale, "softcap": vectors.softcap}


def _lines(**texts: str) -> dict[str, str]:
    return {name: sanitize.one_line(text) for name, text in texts.items()}


def _labels(words: Sequence[str]) -> list[str]:
    return [sanitize.token_label(word) for word in words]


class QuantisedArray(TypedDict):
    """Quantised array as JSON data; `error` is the largest difference of a number from its original."""

    shape: list[int]
    bytes: int
    low: float
    high: float
    error: float
    data: str


def quantise(values: ArrayLike, max_two_byte_size: int = _MAX_TWO_BYTE_SIZE) -> QuantisedArray:
    """Quantise, deflate and base64-encode an array; the last code is NaN.

    >>> packed = quantise([[0.0, 0.25], [1.0, float("nan")]])
    >>> packed["shape"], packed["bytes"], packed["error"] < 1e-5
    ([2, 2], 2, True)
    """
    array = np.asarray(values, dtype=np.float64)  # float32 rounding alone would exceed the stated error
    finite = np.isfinite(array)
    low, high = (float(f(array[finite])) if finite.any() else 0.0 for f in (np.min, np.max))
    dtype = np.dtype("<u2") if array.size <= max_two_byte_size else np.dtype("u1")
    last = np.iinfo(dtype).max
    step = (high - low) / (last - 1) if high > low else 1.0
    with np.errstate(invalid="ignore"):
        codes = np.where(finite, np.rint((array - low) / step), last).astype(dtype)
    return {
        "shape": list(array.shape),
        "bytes": dtype.itemsize,
        "low": low,
        "high": high,
        "error": step / 2 if high > low else 0.0,
        "data": _deflate(codes),
    }


def _deflate(array: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 6)).decode("ascii")


def exact_decimals(error: float, max_decimals: int) -> int:
    """Return how many decimals are exact with this error, at most `max_decimals`.

    >>> exact_decimals(0.002, 4), exact_decimals(7.6e-6, 4), exact_decimals(0.0, 4)
    (2, 4, 4)
    """
    return max_decimals if error <= 0 else max(0, min(max_decimals, math.floor(-math.log10(2 * error))))
