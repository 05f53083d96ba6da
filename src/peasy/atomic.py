"""Atomic writes of files and directories: written beside the target, fsynced, then renamed to it.

An error of the disk names the path, and if it is full the bytes needed and free (`disk_errors`).
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from peasy.errors import InvalidInput, NotFound, PeasyError, ResourceUnavailable, check_file_name

_CANNOT_FLUSH_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM)
"""Errors of file systems (network, FUSE) that cannot flush a folder; a rename there is as durable as it can be."""

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextlib.contextmanager
def atomic_dir(target: str | Path) -> Iterator[Path]:
    """Context manager: a temporary folder that is renamed to `target` on success and deleted on failure.

    An existing target is never overwritten. Other processes see all of `target` or nothing.
    """
    target = Path(target)
    check_file_name(target)
    refuse_existing(target)
    temporary = target.parent / f".{target.name}.part-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        for directory, _, names in os.walk(temporary, topdown=False):
            for name in names:
                _fsync(Path(directory) / name)
            _fsync(Path(directory))
        refuse_existing(target)
        os.rename(temporary, target)
        _fsync(target.parent)
    except BaseException as error:
        num_bytes = _folder_bytes(temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        if (disk_error := _as_disk_error(error)) is not None:
            raise _as_user_error(disk_error, target, f"more than {num_bytes:,}") from error
        raise


def write_atomic(path: str | Path, content: str | bytes) -> Path:
    """Write `content` to `path` atomically, replacing an existing file; a failure leaves the old file unchanged."""
    path = Path(path)
    check_file_name(path)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder.", hint=f"Name a file in it, for example {path / 'page.html'}.")
    if not path.parent.is_dir():
        raise NotFound(f"There is no folder {path.parent}.", hint=f"Create it first: mkdir -p {path.parent}")
    target = path.resolve()  # a link is followed, not replaced
    temporary, content = None, content if isinstance(content, bytes) else content.encode("utf-8")
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _file_mode(target))
        os.replace(temporary, target)
    except BaseException as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise _as_user_error(error, path, f"{len(content):,}") from error
        raise
    return path


@contextlib.contextmanager
def disk_errors(path: Path, num_bytes: int = 0, hint: str | None = None) -> Iterator[None]:
    """Raise an error of the disk inside the block as one that names the path, and the bytes to be written there."""
    try:
        yield
    except Exception as error:
        if (disk_error := _as_disk_error(error)) is None:
            raise
        raise _as_user_error(disk_error, path, f"{num_bytes:,}", hint) from error


def append_durably(file: BinaryIO, path: Path, data: bytes, hint: str | None = None) -> None:
    """Append to an unbuffered file, all of the data or nothing: what a full disk took of it is removed again."""
    size = file.seek(0, os.SEEK_END)
    try:
        with disk_errors(path, len(data), hint):
            rest = memoryview(data)
            while rest:  # a disk that becomes full takes a part first
                rest = rest[file.write(rest) :]
    except BaseException:
        with contextlib.suppress(OSError):
            file.truncate(size)
        raise


def set_aside(folder: Path, reason: str) -> Path:
    """Rename a folder to a hidden name in one step, so that no reader sees half of it; return the new path."""
    hidden = folder.with_name(f".{folder.name}.{reason}-{secrets.token_hex(4)}")
    try:
        os.rename(folder, hidden)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be moved: {error.strerror}.") from None
    with contextlib.suppress(OSError):
        _fsync(folder.parent)
    return hidden


def refuse_existing(target: str | Path) -> None:
    """Raise if `target` already exists."""
    if os.path.lexists(target):
        raise InvalidInput(f"{target} already exists; peasy never overwrites.", hint="Choose another name.")


def _as_disk_error(error: BaseException) -> OSError | None:
    """Return the system's error; libraries in Rust have their own exceptions, with its number in the text."""
    if isinstance(error, OSError):
        return error
    found = _OS_ERROR.search(str(error)) if isinstance(error, Exception) and not isinstance(error, PeasyError) else None
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


def _folder_bytes(folder: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(path.stat().st_size for path in folder.rglob("*"))
    return 0


def _as_user_error(error: OSError, target: Path, needed: str, hint: str | None = None) -> PeasyError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        existing = next(folder for folder in target.absolute().parents if folder.exists())
        sizes = f"{needed} bytes are needed, {shutil.disk_usage(existing).free:,} bytes are free"
        return ResourceUnavailable(
            f"The disk is full: {target} was not written ({reason}; {sizes}).",
            hint=hint or "Free some space, then run the command again. Nothing was left half-written.",
        )
    if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
        return InvalidInput(f"{target} already exists; peasy never overwrites.", hint="Choose another name.")
    return ResourceUnavailable(f"{target} cannot be written: {reason}.", hint=hint or "Nothing was left half-written.")


def _fsync(path: Path) -> None:
    """Flush a file or folder to the disk; folders only where the system can."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":
        return  # Windows has no handle on a folder to flush
    # Windows flushes only what is open for writing; elsewhere a file may be read-only
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (is_folder and error.errno in _CANNOT_FLUSH_FOLDERS):
            raise
    finally:
        os.close(descriptor)


def _file_mode(target: Path) -> int:
    # mkstemp makes files readable only by the owner; a saved page should have the usual permissions.
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
