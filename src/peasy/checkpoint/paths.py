"""Data directory of peasy: paths of runs, imported models and checkpoints, by name."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_data_path

from peasy.checkpoint.manifest import is_intact
from peasy.checkpoint.store import is_checkpoint
from peasy.errors import InvalidInput, UsageError

_STEP_DIR = re.compile(r"step-\d+")


def data_dir() -> Path:
    """Return the user's data directory: `PEASY_HOME`, else the platform's default."""
    configured = os.environ.get("PEASY_HOME")
    return Path(configured).expanduser() if configured else user_data_path("peasy", appauthor=False)


def run_path(name: str) -> Path:
    """Return the path for a run or an imported model of this name."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", name):
        hint = "Use letters, digits, dots, dashes and underscores."
        raise UsageError(f'"{name[:100]}" is not a valid name.', hint=hint)
    return data_dir() / "runs" / name


def find_runs() -> dict[str, Path]:
    """Return all runs and imported models by name; `runs/` in the current folder takes precedence."""
    by_name: dict[str, Path] = {}
    for parent in (Path("runs"), data_dir() / "runs"):
        for folder in _subdirectories(parent):
            by_name.setdefault(folder.name, folder)
    return dict(sorted(by_name.items()))


def run_version(name: str) -> tuple[int, ...]:
    """Return numbers that change when a run of this name or a checkpoint of it appears or goes; lists no folder."""
    folders = [parent / name for parent in (Path("runs"), data_dir() / "runs")]
    return tuple(_modified_ns(folder / child) for folder in folders for child in ("", "checkpoints"))


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, newest first, sorted by step (not by file time)."""
    if is_checkpoint(run):
        return [run]
    steps = [folder for folder in _subdirectories(run / "checkpoints") if _STEP_DIR.fullmatch(folder.name)]
    return sorted(steps, key=lambda folder: int(folder.name.removeprefix("step-")), reverse=True)


def latest_checkpoint(run: Path) -> tuple[Path, list[Path]]:
    """Return the newest undamaged checkpoint of a run, and the newer damaged ones that were skipped."""
    damaged: list[Path] = []
    for folder in list_checkpoints(run):
        if is_intact(folder):
            return folder, damaged
        damaged.append(folder)
    if damaged:
        raise InvalidInput(f"All checkpoints of {run} are damaged.", hint=f"The newest one is {damaged[0]}.")
    raise InvalidInput(f"{run} has no checkpoint yet.")


def _subdirectories(parent: Path) -> Iterator[Path]:
    try:
        entries = sorted(parent.iterdir())
    except OSError:
        return
    yield from (entry for entry in entries if entry.is_dir() and not entry.name.startswith("."))
