"""Resolve a MODEL argument: path, run, built-in model, prefix of a run's name, or hub id, in this order."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peasy.checkpoint import hub
from peasy.checkpoint.home import checkpoints, latest, runs
from peasy.errors import NotFound, UsageError, did_you_mean


@dataclass(frozen=True)
class Found:
    """Location of a model: `name` resolves to it again; `folder` has config.json or tokenizer.json.

    `verified`: its files were just compared with their manifest.
    """

    kind: Literal["path", "run", "built-in", "hub"]
    name: str
    folder: Path
    verified: bool = False


def built_in() -> dict[str, Path]:
    """Return the models that are shipped with peasy."""
    parent = Path(__file__).parent.parent / "models" / "ready"
    return {folder.name: folder for folder in sorted(parent.glob("*")) if (folder / "manifest.json").is_file()}


def resolve(model: str | Path, *, offline: bool = False, ask: hub.Ask | None = None) -> Found:
    """Find a model by the name or path that a user typed; a download starts only if `ask` returns True.

    Without `ask` nothing is downloaded.
    """
    if not str(model).strip():
        raise UsageError("No model was given.", hint="List the available models: peasy models")
    path, name = Path(model).expanduser(), str(model)
    if path.exists() and not _by_chance(model, path):
        return Found("path", name, *_checkpoint_in(path))
    if isinstance(model, Path) or name.startswith((".", "~", os.sep)) or name.endswith((".json", ".safetensors")):
        raise NotFound(f"{path} does not exist.", hint=_near(path))
    local = _at_home(name) or _cached(name)
    if local is not None:
        return local
    if hub.is_id(name):
        return Found("hub", name, hub.fetch(name, ask or _nobody, offline=offline))
    raise _unknown(name)


def _by_chance(model: str | Path, path: Path) -> bool:
    """Return whether `path` is an unrelated folder that happens to have the name of a run or built-in model."""
    model_files = ("config.json", "tokenizer.json", "manifest.json", "checkpoints")
    if isinstance(model, Path) or len(path.parts) > 1 or not path.is_dir():
        return False
    known = str(model) in runs() or str(model) in built_in()
    return known and not any((path / file).exists() for file in model_files)


def _at_home(name: str) -> Found | None:
    run_paths, shipped = runs(), built_in()
    if name in run_paths:
        return Found("run", name, *_checkpoint_in(run_paths[name]))
    if name in shipped:
        return Found("built-in", name, shipped[name])
    matches = [run for run in run_paths if run.startswith(name)]
    if len(matches) > 1:
        raise NotFound(f'"{name}" is ambiguous: {", ".join(matches[:5])}.', hint="Type more letters of the name.")
    return Found("run", matches[0], *_checkpoint_in(run_paths[matches[0]])) if matches else None


def _cached(name: str) -> Found | None:
    folder = hub.cached(name) if hub.is_id(name) else None
    return Found("hub", name, folder) if folder is not None else None


def _checkpoint_in(path: Path) -> tuple[Path, bool]:
    """Return (folder, verified): the folder itself, or the newest undamaged checkpoint of a run."""
    if not (path / "checkpoints").is_dir() or ((path / "config.json").is_file() and not checkpoints(path)):
        return path, False
    folder, damaged = latest(path)
    if damaged:
        names = ", ".join(skipped.name for skipped in damaged)
        warnings.warn(f"{path}: {names} is damaged; using {folder.name} instead.", stacklevel=3)
    return folder, True


def _nobody(question: str) -> bool:
    raise UsageError(f"{question} This needs confirmation.", hint="Confirm in advance with yes=True, or --yes.")


def _unknown(name: str) -> NotFound:
    suggestion = did_you_mean(name, [*runs(), *built_in(), *hub.all_cached(), *hub.WITHOUT_OWNER])
    return NotFound(f'No model "{name}".', hint=f"{suggestion + ' ' if suggestion else ''}See all: peasy models")


def _near(path: Path) -> str | None:
    try:
        return did_you_mean(path.name, (other.name for other in path.parent.iterdir()))
    except OSError:
        return None
