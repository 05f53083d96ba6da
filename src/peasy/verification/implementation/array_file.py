"""File of named arrays between the two processes: a line of JSON, then the bytes; nothing is pickled."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from peasy.errors import InvalidInput


def save_file(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write named arrays of numbers."""
    header = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    with path.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        for array in arrays.values():
            _check(array.dtype)
            file.write(np.ascontiguousarray(array).tobytes())


def load_file(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays that `save_file` wrote; sizes are checked against the file before anything is allocated."""
    line, _, content = path.read_bytes().partition(b"\n")
    arrays, offset = {}, 0
    for name, (kind, shape) in json.loads(line).items():
        dtype, count = np.dtype(kind), int(np.prod(shape, dtype=object))
        _check(dtype)
        if not 0 <= count * dtype.itemsize <= len(content) - offset:
            raise InvalidInput(f"The file of arrays is cut off at {name}.")
        arrays[name] = np.frombuffer(content, dtype, count, offset).reshape(shape).copy()
        offset += count * dtype.itemsize
    return arrays


def _check(dtype: np.dtype) -> None:
    if dtype.kind not in "biufc":
        raise InvalidInput(f"An array of numbers is needed, not of {dtype}.")
