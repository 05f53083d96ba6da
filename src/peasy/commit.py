"""How anything durable is written: beside its place, made safe on the disk, then moved there in one step."""

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
    """A temporary folder beside `target` that becomes `target` when the block ends well, and vanishes when not.

    Nothing is ever overwritten: a target that exists is refused. Whoever looks at `target` sees all of it or nothing.
    """
    target = Path(target)
    refuse_existing(target)
    part = target.parent / f".{target.name}.part-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        yield part
        _sync_all(part)
        refuse_existing(target)
        os.rename(part, target)
        _sync(target.parent)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise _explained(error, target) from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def refuse_existing(target: str | Path) -> None:
    """An error if there is something in the way already."""
    if os.path.lexists(target):
        raise InvalidInput(f"{target} exists already; peasy never overwrites.", hint="Choose another name.")


def _explained(error: OSError, target: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(target.parent).free if target.parent.exists() else 0
        return NoRoom(f"The disk is full: {target} was not written ({free:,} bytes are free).")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return InvalidInput(f"{target} exists already; peasy never overwrites.", hint="Choose another name.")
    return NoRoom(f"{target} cannot be written: {error.strerror or error}.", hint="Nothing was left half-written.")


def _sync_all(folder: Path) -> None:
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(place) / name)
        _sync(Path(place))


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle on a folder to flush.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
