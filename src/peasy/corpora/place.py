"""Where shards are committed, and where an earlier writer that was killed is tidied up after.

Shards may be many gigabytes, so what a crash left behind must not stay: it is recognised by its lock, which nobody
holds any more, and taken away.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from peasy import commit

try:
    import fcntl
except ModuleNotFoundError:  # Windows: what was cut off stays until somebody deletes it
    fcntl = None  # type: ignore[assignment]

_LOCK = ".writing"


@contextmanager
def committed(target: Path) -> Iterator[Path]:
    """A new folder that becomes `target` when the block ends well, and vanishes when it does not."""
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
    """Take away what an earlier writer of the same folder left when it was killed."""
    for old in target.parent.glob(f".{_literal(target.name)}.part-*"):
        try:
            with (old / _LOCK).open("rb") as lock:
                abandoned = _hold(lock)
        except OSError:
            continue  # no lock: it was begun at this moment, or is about to be moved
        if abandoned:
            shutil.rmtree(old, ignore_errors=True)


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
