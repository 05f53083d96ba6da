"""Atomic writes of directories and files: written beside the target, fsynced, then renamed to it."""

import contextlib
import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from peasy.errors import InvalidInput, NotFound, ResourceUnavailable


@contextlib.contextmanager
def atomic_dir(target: str | Path) -> Iterator[Path]:
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
        _fsync_all(temporary)
        refuse_existing(target)
        os.rename(temporary, target)
        _fsync(target.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _as_user_error(error, target) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def refuse_existing(target: str | Path) -> None:
    """Raise if `target` already exists."""
    if os.path.lexists(target):
        raise InvalidInput(f"{target} already exists; peasy never overwrites.", hint="Choose another name.")


def _as_user_error(error: OSError, target: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(target.parent).free if target.parent.exists() else 0
        return ResourceUnavailable(f"The disk is full: {target} was not written ({free:,} bytes are free).")
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return InvalidInput(f"{target} already exists; peasy never overwrites.", hint="Choose another name.")
    return ResourceUnavailable(
        f"{target} cannot be written: {error.strerror or error}.", hint="Nothing was left half-written."
    )


def _fsync_all(folder: Path) -> None:
    for directory, _, names in os.walk(folder, topdown=False):
        for name in names:
            _fsync(Path(directory) / name)
        _fsync(Path(directory))


def _fsync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no handle on a folder to flush.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: str | Path, content: str | bytes) -> Path:
    """Write `content` to `path` atomically, replacing an existing file; a failure leaves the old file unchanged."""
    target = Path(path)
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder.", hint=f"Name a file in it, for example {target / 'page.html'}.")
    if not target.parent.is_dir():
        raise NotFound(f"There is no folder {target.parent}.", hint=f"Create it first: mkdir -p {target.parent}")
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    try:
        _replace(target, data)
    except OSError as problem:
        raise ResourceUnavailable(
            f"{target} could not be written: {problem.strerror or problem}.", hint="Choose another path."
        ) from problem
    return target


def _replace(target: Path, data: bytes) -> None:
    # Rename only after the new file is complete and on disk.
    target = target.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(data)
            part.flush()
            os.fsync(part.fileno())
        os.chmod(name, _file_mode(target))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _file_mode(target: Path) -> int:
    # mkstemp makes files readable only by the owner; a saved page should have the usual permissions.
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
