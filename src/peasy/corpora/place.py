"""A folder that appears all at once: written beside its place, made safe on the disk, then moved there.

One that was cut off by a crash is recognised by its lock, which nobody holds any more, and taken away.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from peasy.errors import InvalidInput, NoRoom

try:
    import fcntl
except ModuleNotFoundError:  # Windows: what was cut off stays until somebody deletes it
    fcntl = None  # type: ignore[assignment]

_LOCK = ".writing"


@contextmanager
def committed(target: Path) -> Iterator[Path]:
    """A new folder that becomes `target` when the block ends well, and vanishes when it does not."""
    part = target.parent / f".{target.name}.part-{secrets.token_hex(6)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        part.mkdir()
        with (part / _LOCK).open("wb") as lock:
            _hold(lock)
            yield part
            _make_safe(part)
            os.rename(part, target)
            _sync(target.parent)
            (target / _LOCK).unlink(missing_ok=True)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise _in_words(error, target) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


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
            continue  # no lock yet: it was begun at this moment
        if abandoned:
            shutil.rmtree(old, ignore_errors=True)


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _in_words(error: OSError, target: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(target.parent).free if target.parent.exists() else 0
        return NoRoom(f"The disk is full: {target} was not written ({free:,} bytes are free).")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return InvalidInput(f"{target} exists already; peasy never overwrites.", hint="Choose another name.")
    return NoRoom(f"{target} cannot be written: {error.strerror or error}.", hint="Nothing was left half-written.")


def _make_safe(folder: Path) -> None:
    for path in folder.iterdir():
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle on a folder to flush.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
