"""Atomic write of a shard folder that also removes what an earlier, killed writer left.

Shards may take gigabytes, so leftovers must be deleted: a temporary folder is abandoned if its lock is free.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from peasy import commit

try:
    import fcntl
except ModuleNotFoundError:  # Windows: leftovers stay until they are deleted by hand
    fcntl = None  # type: ignore[assignment]

_LOCK = ".writing"


@contextmanager
def committed(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `target` if the block succeeds, and is deleted if it fails."""
    _sweep(target)
    with commit.committed(target) as part, (part / _LOCK).open("wb") as lock:
        _hold(lock)
        yield part
        (part / _LOCK).unlink()


def _hold(lock: IO[bytes]) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(target: Path) -> None:
    """Delete the temporary folders of killed writers of the same target."""
    for old in target.parent.glob(f".{_literal(target.name)}.part-*"):
        try:
            with (old / _LOCK).open("rb") as lock:
                abandoned = _hold(lock)
        except OSError:
            continue  # no lock file: just being created, or about to be renamed
        if abandoned:
            shutil.rmtree(old, ignore_errors=True)


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
