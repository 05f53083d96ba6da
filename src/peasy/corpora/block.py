"""Files of numbers that are written block by block and checked block by block, through a memory map."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from peasy.errors import InvalidInput

BLOCK = 1 << 22
"""Bytes that share one SHA-256."""

_KINDS = {"uint16", "uint32", "int64"}


class BlockWriter:
    """Writes numbers in order; `finish` tells what `BlockFile` needs to read them."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._file = path.open("xb")
        self._dtype = dtype.newbyteorder("<")
        self._waiting = bytearray()
        self._hashes: list[str] = []
        self.items = 0
        self.last: int | None = None

    def write(self, numbers: ArrayLike) -> None:
        """Append numbers; all of them must fit the width of the file."""
        values = np.asarray(numbers, dtype=np.int64)
        if not values.size:
            return
        assert 0 <= int(values.min()) <= int(values.max()) <= np.iinfo(self._dtype).max, "too wide for this file"
        self.items += values.size
        self.last = int(values[-1])
        self._waiting += values.astype(self._dtype).tobytes()
        while len(self._waiting) >= BLOCK:
            self._put(BLOCK)

    def finish(self) -> dict[str, Any]:
        """Write what is left, and describe the file."""
        if self._waiting:
            self._put(len(self._waiting))
        return {"dtype": self._dtype.name, "items": self.items, "block": BLOCK, "sha256": self._hashes}

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _put(self, size: int) -> None:
        block = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._file.write(block)
        self._hashes.append(hashlib.sha256(block).hexdigest())


class BlockFile:
    """Reads what a `BlockWriter` wrote; a block is checked when it is first touched."""

    def __init__(self, path: Path, described: dict[str, Any]) -> None:
        self.path = path
        self._hashes: list[str] = described["sha256"]
        self._block: int = described["block"]
        if described["dtype"] not in _KINDS:
            raise InvalidInput(f"{path}: numbers of kind {described['dtype']} are not known.")
        dtype, items = np.dtype(described["dtype"]).newbyteorder("<"), int(described["items"])
        size = path.stat().st_size if path.is_file() else -1
        if size != items * dtype.itemsize or len(self._hashes) != -(-size // self._block):
            told = "is missing" if size < 0 else f"has {size:,} bytes"
            raise InvalidInput(
                f"{path} {told} and should have {items * dtype.itemsize:,}.", hint="Prepare the corpus again."
            )
        self._values = np.memmap(path, dtype=dtype, mode="r") if items else np.empty(0, dtype=dtype)
        self._good = np.zeros(len(self._hashes), dtype=bool)

    def __len__(self) -> int:
        return len(self._values)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers at some places."""
        return self.rows(places, 1)[:, 0]

    def rows(self, starts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """`length` numbers from each start."""
        return self.ragged(starts, np.full(len(starts), length), length)

    def ragged(self, starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Rows of `width`, of which the first `lengths` are the numbers from each start and the rest mean nothing."""
        if not width or not len(starts):
            return np.zeros((len(starts), width), dtype=np.int64)
        last = starts + lengths - 1
        assert 0 <= int(starts.min()) <= int(last.max(initial=0)) < len(self), "a window reaches out of the file"
        self._check(starts, last)
        places = np.minimum(starts[:, None] + np.arange(width), np.maximum(last, 0)[:, None])
        return self._values[places].astype(np.int64)

    def verify(self) -> None:
        """Check every block that was not checked yet."""
        for block in np.flatnonzero(~self._good):
            self._check_block(int(block))

    def _check(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        if self._good.all():
            return
        each = self._block // self._values.itemsize
        for start, end in set(zip((first // each).tolist(), (last // each).tolist(), strict=True)):
            for block in range(start, end + 1):
                if not self._good[block]:
                    self._check_block(block)

    def _check_block(self, block: int) -> None:
        each = self._block // self._values.itemsize
        found = hashlib.sha256(self._values[block * each : (block + 1) * each].tobytes()).hexdigest()
        if found != self._hashes[block]:
            raise InvalidInput(
                f"{self.path} is damaged between bytes {block * self._block:,} and {(block + 1) * self._block:,}.",
                hint="Delete the folder and prepare the corpus again.",
            )
        self._good[block] = True
