"""Memory-mapped arrays with a SHA-256 per block, checked on first access."""

import hashlib
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput

BLOCK_BYTES = 1 << 22
"""Bytes per SHA-256."""

_DTYPES = {"uint16", "uint32", "int64"}


class ArrayDescription(TypedDict):
    """What a reader needs to know of a file: dtype, number of items, bytes per hash, and the hashes."""

    dtype: str
    items: int
    block: int
    sha256: list[str]


class CheckedArrayWriter:
    """Appends numbers to a file; `finish` returns the description that the reader needs."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = path.open("xb")
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._buffer = bytearray()
        self._hashes: list[str] = []
        self.num_items = 0
        self.last: int | None = None

    def write(self, numbers: ArrayLike) -> None:
        """Append numbers; all must fit the dtype of the file."""
        values = np.asarray(numbers, dtype=np.int64)
        if not values.size:
            return
        assert 0 <= int(values.min()) <= int(values.max()) <= np.iinfo(self._dtype).max, "too large for this dtype"
        self.num_items += values.size
        self.last = int(values[-1])
        self._buffer += values.astype(self._dtype).tobytes()
        while len(self._buffer) >= BLOCK_BYTES:
            self._write_block(BLOCK_BYTES)

    def finish(self) -> ArrayDescription:
        """Write the rest, and return the description of the file."""
        if self._buffer:
            self._write_block(len(self._buffer))
        return {"dtype": self._dtype.name, "items": self.num_items, "block": BLOCK_BYTES, "sha256": self._hashes}

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _write_block(self, size: int) -> None:
        block = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._file.write(block)
        self._hashes.append(hashlib.sha256(block).hexdigest())


class CheckedArray:
    """Reads what the writer wrote; a block is checked when it is first read."""

    def __init__(self, path: Path, description: ArrayDescription) -> None:
        self.path = path
        self._hashes, self._block_bytes = description["sha256"], description["block"]
        if description["dtype"] not in _DTYPES:
            raise InvalidInput(f"{path}: unsupported dtype {description['dtype']}.")
        dtype, items = np.dtype(description["dtype"]).newbyteorder("<"), int(description["items"])
        size = path.stat().st_size if path.is_file() else -1
        if size != items * dtype.itemsize or len(self._hashes) != -(-size // self._block_bytes):
            status = "is missing" if size < 0 else f"has {size:,} bytes"
            raise InvalidInput(
                f"{path} {status} and should have {items * dtype.itemsize:,} bytes.", hint="Prepare the corpus again."
            )
        self._values = np.memmap(path, dtype=dtype, mode="r") if items else np.empty(0, dtype=dtype)
        self._verified = np.zeros(len(self._hashes), dtype=bool)

    def __len__(self) -> int:
        return len(self._values)

    def rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """Return `length` numbers from each start."""
        return self.ragged(starts, np.full(len(starts), length), length)

    def ragged(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Return rows of `width`: the first `lengths` numbers come from each start, the rest is arbitrary."""
        if not width or not len(starts):
            return np.zeros((len(starts), width), dtype=np.int64)
        last = starts + lengths - 1
        assert 0 <= int(starts.min()) <= int(last.max(initial=0)) < len(self), "a window ends outside the file"
        self._check(starts, last)
        indices = np.minimum(starts[:, None] + np.arange(width), np.maximum(last, 0)[:, None])
        numbers: NDArray[np.int64] = self._values[indices].astype(np.int64)
        return numbers

    def verify(self) -> None:
        """Check every block that was not checked yet."""
        for block in np.flatnonzero(~self._verified):
            self._check_block(int(block))

    def _check(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        if self._verified.all():
            return
        size = self._block_bytes // self._values.itemsize
        for start, end in set(zip((first // size).tolist(), (last // size).tolist(), strict=True)):
            for block in range(start, end + 1):
                if not self._verified[block]:
                    self._check_block(block)

    def _check_block(self, block: int) -> None:
        size = self._block_bytes // self._values.itemsize
        values = self._values[block * size : (block + 1) * size]
        if hashlib.sha256(values.tobytes()).hexdigest() != self._hashes[block]:
            start, end = block * self._block_bytes, (block + 1) * self._block_bytes
            raise InvalidInput(
                f"{self.path} is corrupt between bytes {start:,} and {end:,}.",
                hint="Delete the folder and prepare the corpus again.",
            )
        self._verified[block] = True
