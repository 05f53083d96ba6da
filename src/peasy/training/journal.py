"""The journal of a run: one line of JSON for each event, always written, cut back to where a run goes on from."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from peasy.errors import NoRoom


class Journal:
    """Appends lines to a file; `keep` makes them safe on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)

    def write(self, line: dict[str, Any]) -> None:
        """Append one line, in one write: a kill leaves whole lines and at most one torn one at the end."""
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._explained(lambda: self._file.write(data), len(data))

    def keep(self) -> None:
        """Return when everything written is on the disk."""
        self._explained(lambda: os.fsync(self._file.fileno()), 0)

    def _explained(self, act: Callable[[], object], needed: int) -> None:
        try:
            act()
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            why = f"the disk is full, {needed:,} bytes are needed" if full else error.strerror or str(error)
            raise NoRoom(f"{self.path} cannot be written: {why}.", hint="The checkpoints are untouched.") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal that are whole."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    for line in text.split(b"\n"):
        try:
            found = json.loads(line)
        except ValueError:
            continue  # the end of a file whose writer was killed
        if isinstance(found, dict):
            yield found


def trim(path: Path, step: int) -> None:
    """Drop what was written after `step`: the run will write it again."""
    kept = [line for line in read(path) if line.get("step", 0) <= step]
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.writelines(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
