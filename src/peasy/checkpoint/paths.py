"""Where models are: data directory, runs and their checkpoints; resolves a MODEL argument to a folder."""

import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path

from peasy.checkpoint import hub
from peasy.checkpoint.safe_folder import suggest_sibling
from peasy.checkpoint.store import is_checkpoint, is_intact
from peasy.errors import InvalidInput, NotFound, UsageError, did_you_mean
from peasy.parameters import Record

_STEP_DIR = re.compile(r"step-\d+")


class ResolvedModel(Record):
    """Location of a model: `name` resolves to it again; `folder` has config.json or tokenizer.json.

    `verified`: its files were just compared with their manifest.
    """

    kind: Literal["path", "run", "built-in", "hub"]
    name: str
    folder: Path
    verified: bool = False


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
    folders = [*_subdirectories(data_dir() / "runs"), *_subdirectories(Path("runs"))]
    return dict(sorted({folder.name: folder for folder in folders}.items()))


def built_in_models() -> dict[str, Path]:
    """Return the models that are shipped with peasy."""
    parent = Path(__file__).parent.parent / "models" / "built_in"
    return {folder.name: folder for folder in sorted(parent.glob("*")) if is_checkpoint(folder)}


def run_version(name: str) -> tuple[int, ...]:
    """Return numbers that change when a run of this name or a checkpoint of it appears or goes; lists no folder."""

    def modified_ns(path: Path) -> int:
        try:
            return path.stat().st_mtime_ns
        except (OSError, ValueError):  # there is none; or the name cannot be one
            return 0

    folders = [parent / name for parent in (Path("runs"), data_dir() / "runs")]
    return tuple(modified_ns(folder / child) for folder in folders for child in ("", "checkpoints"))


def list_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, newest first, sorted by step (not by file time)."""
    if is_checkpoint(run):
        return [run]
    steps = [folder for folder in _subdirectories(run / "checkpoints") if _STEP_DIR.fullmatch(folder.name)]
    return sorted(steps, key=lambda folder: int(folder.name.removeprefix("step-")), reverse=True)


def latest_checkpoint(run: Path) -> tuple[Path | None, list[Path]]:
    """Return the newest undamaged checkpoint of a run, and the newer damaged ones that were skipped."""
    damaged: list[Path] = []
    for folder in list_checkpoints(run):
        if is_intact(folder):
            return folder, damaged
        damaged.append(folder)
    return None, damaged


def resolve_model(model: str | Path, *, offline: bool = False, confirm: hub.Confirm | None = None) -> ResolvedModel:
    """Find a model by what a user typed: path, run, built-in model, prefix of a run's name, or hub id, in this order.

    `my-run@200` is the checkpoint of step 200 of a run, if it was kept.
    A download starts only if `confirm` returns True; without `confirm` nothing is downloaded.
    """
    if not str(model).strip():
        raise UsageError("No model was given.", hint="List the available models: peasy models")
    path, name, runs, built_in = Path(model).expanduser(), str(model), find_runs(), built_in_models()
    is_bare_name = isinstance(model, str) and len(path.parts) == 1 and (name in runs or name in built_in)
    if path.exists() and not (is_bare_name and _is_unrelated_folder(path)):
        return ResolvedModel("path", name, *_select_checkpoint(path))
    if isinstance(model, Path) or name.startswith((".", "~", os.sep)) or name.endswith((".json", ".safetensors")):
        raise NotFound(f"{path} does not exist.", hint=suggest_sibling(path))
    if name in built_in and name not in runs:
        return ResolvedModel("built-in", name, built_in[name])
    matches = [name] if name in runs else [run for run in runs if run.startswith(name)]
    if len(matches) > 1:
        raise NotFound(f'"{name}" is ambiguous: {", ".join(matches[:5])}.', hint="Type more letters of the name.")
    if matches:
        return ResolvedModel("run", matches[0], *_select_checkpoint(runs[matches[0]]))
    run, _, step = name.partition("@")
    if run in runs:
        return ResolvedModel("run", name, _checkpoint_of_step(runs[run], step))
    if hub.is_hub_id(name):
        return ResolvedModel("hub", name, hub.fetch_model(name, confirm, offline=offline))
    suggestion = did_you_mean(name, [*runs, *built_in, *hub.list_cached(), *hub.LEGACY_IDS])
    raise NotFound(f'No model "{name}".', hint=f"{suggestion + ' ' if suggestion else ''}See all: peasy models")


def _is_unrelated_folder(path: Path) -> bool:
    """Return whether `path`, which has the name of a run or built-in model, is a folder without a model's files."""
    model_files = ("config.json", "tokenizer.json", "manifest.json", "checkpoints")
    return path.is_dir() and not any((path / file).exists() for file in model_files)


def _select_checkpoint(path: Path) -> tuple[Path, bool]:
    """Return (folder, verified): the folder itself, or the newest undamaged checkpoint of a run."""
    if not (path / "checkpoints").is_dir() or ((path / "config.json").is_file() and not list_checkpoints(path)):
        return path, False
    folder, damaged = latest_checkpoint(path)
    if folder is None and damaged:
        raise InvalidInput(f"All checkpoints of {path} are damaged.", hint=f"The newest one is {damaged[0]}.")
    if folder is None:
        raise InvalidInput(f"{path} has no checkpoint yet.")
    if damaged:
        names = ", ".join(skipped.name for skipped in damaged)
        warnings.warn(f"{path}: {names} is damaged; using {folder.name} instead.", stacklevel=3)
    return folder, True


def _checkpoint_of_step(run: Path, step: str) -> Path:
    """Return the checkpoint of one step of a run."""
    kept = {folder.name.removeprefix("step-").lstrip("0"): folder for folder in reversed(list_checkpoints(run))}
    if step not in kept:
        hint = f"Kept are: {', '.join(kept)}. More are kept with --set num_saves=20 --set keep_checkpoints=20."
        raise NotFound(f'{run.name} has no checkpoint of step "{step[:20]}".', hint=hint)
    return kept[step]


def _subdirectories(parent: Path) -> Iterator[Path]:
    try:
        entries = sorted(parent.iterdir())
    except OSError:
        return
    yield from (entry for entry in entries if entry.is_dir() and not entry.name.startswith("."))
