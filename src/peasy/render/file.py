"""Writing a file: all of it, or nothing."""

import contextlib
import os
import tempfile
from pathlib import Path

from peasy.errors import InvalidInput, NoRoom, NotFound


def write(path: str | Path, content: str | bytes) -> Path:
    """Put `content` at `path`, replacing what was there; a failure on the way leaves the old file as it was."""
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
            f"{target} could not be written: {problem.strerror or problem}.", hint="Choose another place."
        ) from problem
    return target


def _replace(target: Path, data: bytes) -> None:
    # The name in the folder moves to the new file only when the new file is whole and on disk.
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
    # mkstemp makes files that only the owner may read; a saved page should be as readable as any other file.
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
