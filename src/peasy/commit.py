"""Atomic directory writes: a temporary directory is written, fsynced and renamed to its target."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peasy.errors import InvalidInput, NoRoom


@contextmanager
def committed(target: str | Path) -> Iterator[Path]:
    """Context manager: a temporary folder that is renamed to `target` on success and deleted on failure.

    An existing target is never overwritten. Other processes see all of `target` or nothing.
    """
    target = Path(target)
    refuse_existing(target)
    temporary = target.parent / f".{target.name}.part-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        _sync_all(temporary)
        refuse_existing(target)
        os.rename(temporary, target)
        _sync(target.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _explained(error, target) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def refuse_existing(target: str | Path) -> None:
    """Raise if `target` already exists."""
    if os.path.lexists(target):
        raise InvalidInput(f"{target} already exists; peasy never overwrites.", hint="Choose another name.")


def _explained(error: OSError, target: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(target.parent).free if target.parent.exists() else 0
        return NoRoom(f"The disk is full: {target} was not written ({free:,} bytes are free).")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return InvalidInput(f"{target} already exists; peasy never overwrites.", hint="Choose another name.")
    return NoRoom(f"{target} cannot be written: {error.strerror or error}.", hint="Nothing was left half-written.")


def _sync_all(folder: Path) -> None:
    for directory, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(directory) / name)
        _sync(Path(directory))


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle on a folder to flush.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
