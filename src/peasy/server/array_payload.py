"""Binary payload of captured arrays: a JSON header followed by raw float32 data.

The first four bytes are the header's length, little-endian; the header lists `arrays`, each with its module path,
step, heads, rows, shape and the offset of its data from the end of the header. Only the requested layers, heads and
rows are sent.
"""

import json
import struct
from typing import Any

import numpy as np

from peasy.inspection.results import AttentionRecord
from peasy.render.json import to_plain

MEDIA_TYPE = "application/vnd.peasy.arrays"


def pack_arrays(record: AttentionRecord) -> bytes:
    """Pack all captures of a record into one payload."""
    arrays: list[dict[str, Any]] = []
    chunks: list[bytes] = []
    offset = 0
    for capture in record.captures:
        array = np.ascontiguousarray(capture.array, dtype="<f4")
        path = capture.path
        entry = {"stack": path.stack, "layer": path.layer, "part": path.part, "step": capture.step}
        entry |= {"heads": capture.heads, "rows": capture.rows}
        arrays.append(entry | {"shape": array.shape, "dtype": "float32", "offset": offset})
        chunks.append(array.tobytes())
        offset += array.nbytes
    fields = {"model": record.model, "tokens": record.tokens.pieces, "arrays": arrays}
    if record.target is not None:
        fields["target"] = record.target.pieces
    header = json.dumps(to_plain(fields), ensure_ascii=False).encode()
    return struct.pack("<I", len(header)) + header + b"".join(chunks)
