"""Run folder: random names such as quiet-fox, and an exclusive lock that the operating system releases."""

import os
import secrets
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from peasy import config
from peasy.atomic import disk_errors
from peasy.errors import PeasyError

_LOCK_FILE = ".lock"


def random_run_name(taken: Container[str] = ()) -> str:
    """Return a random name that is not in `taken`.

    >>> len(random_run_name().split("-"))
    2
    """
    words = config.load(Path(__file__).with_name("run_names.toml"))
    adjectives, animals = words["adjectives"].split(), words["animals"].split()
    for _ in range(100):
        name = f"{secrets.choice(adjectives)}-{secrets.choice(animals)}"
        if name not in taken:
            return name
    return f"{name}-{secrets.token_hex(3)}"


class RunLocked(PeasyError):
    """Another process is training in this folder."""

    code, exit_code = "busy", 6


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` inside the block; raise RunLocked, with the holder's process id, if it is taken."""

    def write_holder(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()}".encode())

    path = folder / _LOCK_FILE
    lock = FileLock(path, blocking=False, thread_local=False, preserve_lock_file=True, on_acquired=write_holder)
    with disk_errors(path, hint="Make the folder writable, or copy the run into a folder of your own."):
        try:
            held = lock.acquire()
        except Timeout:
            holder = ""
            with suppress(OSError):  # Windows lets no other process read a locked file
                holder = path.read_text(encoding="utf-8")[:40].strip()
            message = f"{folder} is being trained by another process{f' ({holder})' if holder else ''}."
            raise RunLocked(message, hint="Wait for it, stop it, or choose another --run.") from None
    with held:
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a process is training in this folder now."""
    if not (folder / _LOCK_FILE).is_file():
        return False
    try:
        with FileLock(folder / _LOCK_FILE, blocking=False, thread_local=False, preserve_lock_file=True):
            return False
    except Timeout:
        return True
    except OSError:  # read-only: this user cannot lock it, and whoever trains there holds a lock that was taken before
        return False
