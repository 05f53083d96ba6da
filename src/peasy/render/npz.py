"""NumPy output (.npz): an array with its labels for every matrix and figure."""

import io
import re

import numpy as np

from peasy.render import sanitize
from peasy.views.document import CacheFigure, Cell, Curves, Document, DocumentPart, Links, Maps, Matrix, Plane

RESERVED_NAMES = {"file", "allow_pickle"}
"""Parameter names of `numpy.savez_compressed`, not usable as array names."""


def draw(document: Document) -> bytes:
    """Render the archive: arrays `NAME` with their labels `NAME.rows`, `NAME.columns` ..."""
    arrays: dict[str, np.ndarray] = {}
    for part in document.parts:
        part_arrays = _arrays(part)
        if part_arrays:
            name = _unique_name(_array_name(part), arrays)
            arrays |= {f"{name}.{key}" if key else name: array for key, array in part_arrays.items()}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def _arrays(part: DocumentPart) -> dict[str, np.ndarray]:
    match part:
        case Matrix():
            return {
                "": _cell_array(part.values),
                "rows": _string_array(part.rows),
                "columns": _string_array(part.columns),
            }
        case Maps():
            names = {key: _string_array(getattr(part, key)) for key in ("down", "across", "rows", "columns")}
            exact = (
                {"exact": part.exact_rows.values, "positions": np.array(part.exact_rows.positions)}
                if part.exact_rows
                else {}
            )
            return {"": part.values, **names, "tile": np.array(part.tile_size), **exact}
        case Links():
            return {"": np.asarray(part.weights), "left": _string_array(part.left), "right": _string_array(part.right)}
        case CacheFigure():
            return {"": np.array(part.steps), "tokens": _string_array(part.tokens)}
        case Plane():
            return {
                "": np.array([point[1:] for point in part.points]),
                "names": _string_array(p[0] for p in part.points),
            }
        case Curves():
            return {sanitize.token_label(name): np.array(points) for name, points in part.lines}
    return {}


def _cell_array(values: tuple[tuple[Cell, ...], ...]) -> np.ndarray:
    """Return a float array, or a string array if any cell is text."""
    if any(isinstance(cell, str) for row in values for cell in row):
        return np.array([["" if cell is None else str(cell) for cell in row] for row in values])
    return np.array([[np.nan if cell is None else cell for cell in row] for row in values], dtype=float)


def _string_array(words: object) -> np.ndarray:
    # Lone surrogates cannot be encoded; printable text stays unchanged.
    return np.array([word if word.isprintable() else sanitize.escape_control(word) for word in words], dtype=str)  # type: ignore[attr-defined]


def _array_name(part: DocumentPart) -> str:
    title = getattr(part, "name", "") if isinstance(part, Matrix) else getattr(part, "title", "")
    name = re.sub(r"\W+", "_", str(title)).strip("_") or type(part).__name__.lower()
    return f"{name}_" if name in RESERVED_NAMES else name


def _unique_name(name: str, taken: dict[str, np.ndarray]) -> str:
    count, wanted = 2, name
    while name in taken or any(key.startswith(f"{name}.") for key in taken):
        name, count = f"{wanted}_{count}", count + 1
    return name
