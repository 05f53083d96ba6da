"""Atomic file write."""

import contextlib
import os
import tempfile
from pathlib import Path

from peasy.errors import InvalidInput, NoRoom, NotFound


def write(path: str | Path, content: str | bytes) -> Path:
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
        raise NoRoom(
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
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _mode(target: Path) -> int:
    # mkstemp makes files readable only by the owner; a saved page should have the usual permissions.
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
