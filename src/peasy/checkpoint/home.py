"""Where peasy keeps what it makes: runs and imported models, by name."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from peasy.checkpoint.manifest import verifies
from peasy.checkpoint.store import is_checkpoint
from peasy.errors import InvalidInput, UsageError

_STEP = re.compile(r"step-\d+")


def home() -> Path:
    """The folder of the user's own things: `PEASY_HOME`, else where the platform keeps the data of programs."""
    if chosen := os.environ.get("PEASY_HOME"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "peasy"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "peasy"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "peasy"


def place_for(name: str) -> Path:
    """Where a run or an imported model of this name belongs."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name):
        raise UsageError(f'"{name[:100]}" is not a name.', hint="Use letters, digits, dots, dashes and underscores.")
    return home() / "runs" / name


def runs() -> dict[str, Path]:
    """All runs and imported models by name; those in `runs/` of the current folder come before those at home."""
    found: dict[str, Path] = {}
    for place in (Path("runs"), home() / "runs"):
        for folder in _folders(place):
            found.setdefault(folder.name, folder)
    return dict(sorted(found.items()))


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, newest first: by step, never by the clock."""
    if is_checkpoint(run):
        return [run]
    steps = [folder for folder in _folders(run / "checkpoints") if _STEP.fullmatch(folder.name)]
    return sorted(steps, key=lambda folder: int(folder.name.removeprefix("step-")), reverse=True)


def latest(run: Path) -> tuple[Path, list[Path]]:
    """The newest whole checkpoint of a run, and those newer ones that were passed over because they are damaged."""
    passed: list[Path] = []
    for folder in checkpoints(run):
        if verifies(folder):
            return folder, passed
        passed.append(folder)
    if passed:
        raise InvalidInput(f"No checkpoint of {run} is whole.", hint=f"The newest one is {passed[0]}.")
    raise InvalidInput(f"{run} holds no checkpoint yet.")


def _folders(place: Path) -> Iterator[Path]:
    try:
        inside = sorted(place.iterdir())
    except OSError:
        return
    yield from (folder for folder in inside if folder.is_dir() and not folder.name.startswith("."))
