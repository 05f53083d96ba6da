"""NumPy output (.npz): an array with its labels for every matrix and figure."""

import io
import re
from collections.abc import Sequence

import numpy as np

from peasy.render import sanitize
from peasy.views.document import CacheFigure, Curves, Document, DocumentPart, Links, Maps, Matrix, Plane

_RESERVED_NAMES = {"file", "allow_pickle"}
"""Parameter names of `numpy.savez_compressed`, not usable as array names."""


def draw(document: Document) -> bytes:
    """Render the archive: arrays `NAME` with their labels `NAME.rows`, `NAME.columns` ..."""
    arrays: dict[str, np.ndarray] = {}
    for part in document.parts:
        if part_arrays := _arrays(part):
            title = part.name if isinstance(part, Matrix) else getattr(part, "title", "")
            wanted = re.sub(r"\W+", "_", str(title)).strip("_") or type(part).__name__.lower()
            wanted = name = f"{wanted}_" if wanted in _RESERVED_NAMES else wanted
            count = 2
            while name in arrays or any(key.startswith(f"{name}.") for key in arrays):
                name, count = f"{wanted}_{count}", count + 1
            arrays |= {f"{name}.{key}" if key else name: array for key, array in part_arrays.items()}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def _arrays(part: DocumentPart) -> dict[str, np.ndarray]:
    match part:
        case Matrix():
            is_text = any(isinstance(cell, str) for row in part.values for cell in row)
            blank = "" if is_text else np.nan
            cells = [[blank if cell is None else str(cell) if is_text else cell for cell in row] for row in part.values]
            array = np.array(cells, dtype=None if is_text else float)
            return {"": array, **_string_arrays(rows=part.rows, columns=part.columns)}
        case Maps():
            labels = _string_arrays(down=part.down, across=part.across, rows=part.rows, columns=part.columns)
            arrays = {"": part.values, **labels, "tile": np.array(part.tile_size)}
            if part.exact_rows:
                arrays |= {"exact": part.exact_rows.values, "positions": np.array(part.exact_rows.positions)}
            return arrays
        case Links():
            return {"": np.asarray(part.weights), **_string_arrays(left=part.left, right=part.right)}
        case CacheFigure():
            return {"": np.array(part.steps), **_string_arrays(tokens=part.tokens)}
        case Plane():
            names = [name for name, _, _ in part.points]
            return {"": np.array([point[1:] for point in part.points]), **_string_arrays(names=names)}
        case Curves():
            return {sanitize.token_label(name): np.array(points) for name, points in part.lines}
    return {}


def _string_arrays(**labels: Sequence[str]) -> dict[str, np.ndarray]:
    # Lone surrogates cannot be encoded; printable text stays unchanged.
    return {key: np.array(list(map(sanitize.escape_control, words)), dtype=str) for key, words in labels.items()}
