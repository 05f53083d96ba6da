"""Large arrays over HTTP: a JSON header that says what they are, and behind it their numbers as they lie in memory.

The first four bytes are the header's length, little-endian; the header lists `arrays`, each with name, axes, labels,
shape and where its float32 numbers begin, counted from the end of the header. What is sent is the window that was asked
for: layers, heads and rows.
"""

import json
import struct
from typing import Any

import numpy as np

from peasy.looking.record import Look
from peasy.render.json import plain

MEDIA = "application/vnd.peasy.block"


def pack_block(look: Look) -> bytes:
    """All that was captured, as one block."""
    arrays: list[dict[str, Any]] = []
    numbers: list[bytes] = []
    start = 0
    for capture in look.captures:
        array = np.ascontiguousarray(capture.array, dtype="<f4")
        place = capture.place
        about = {"stack": place.stack, "layer": place.layer, "part": place.part, "step": capture.step}
        about |= {"heads": capture.heads, "rows": capture.rows}
        arrays.append(about | {"shape": array.shape, "dtype": "float32", "start": start})
        numbers.append(array.tobytes())
        start += array.nbytes
    said = {"model": look.model, "tokens": look.tokens.pieces, "arrays": arrays}
    if look.target is not None:
        said["target"] = look.target.pieces
    header = json.dumps(plain(said), ensure_ascii=False).encode()
    return struct.pack("<I", len(header)) + header + b"".join(numbers)
