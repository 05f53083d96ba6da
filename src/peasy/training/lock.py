"""Exclusive lock of a run folder; the operating system releases it when the process dies."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from peasy.errors import PeasyError

try:
    import fcntl
except ModuleNotFoundError:  # Windows has msvcrt instead
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"


class RunLocked(PeasyError):
    """Another process is training in this folder."""

    code, exit_code = "busy", 6


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` inside the block; raise RunLocked, with the holder's process id, if it is taken."""
    with (folder / LOCK_FILE).open("a+") as file:
        if not _try_lock(file):
            file.seek(0)
            holder = file.read(40).strip()
            raise RunLocked(
                f"{folder} is being trained by another process{f' ({holder})' if holder else ''}.",
                hint="Wait for it, stop it, or choose another --run.",
            )
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield  # closing the file releases the lock


def is_locked(folder: Path) -> bool:
    """Return whether a process is training in this folder now."""
    if fcntl is None or not (folder / LOCK_FILE).is_file():
        return False
    with (folder / LOCK_FILE).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _try_lock(file: IO[str]) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
