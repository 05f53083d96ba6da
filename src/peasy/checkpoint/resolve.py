"""MODEL, as people name it: a path, a run, a built-in, the beginning of a run's name, or a hub id, in this order."""

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
    """Where a model lies: `name` as it may be asked for again, `folder` with config.json or a tokenizer.json.

    `verified`: its files were compared with their manifest a moment ago.
    """

    kind: Literal["path", "run", "built-in", "hub"]
    name: str
    folder: Path
    verified: bool = False


def built_in() -> dict[str, Path]:
    """The models that come with peasy."""
    place = Path(__file__).parent.parent / "models" / "ready"
    return {folder.name: folder for folder in sorted(place.glob("*")) if (folder / "manifest.json").is_file()}


def resolve(model: str | Path, *, offline: bool = False, ask: hub.Ask | None = None) -> Found:
    """Find a model by what a person typed; nothing is downloaded unless `ask` says yes.

    Nobody is asked, and nothing fetched, when `ask` is None.
    """
    if not str(model).strip():
        raise UsageError("No model was named.", hint="See what is here: peasy models")
    path, name = Path(model).expanduser(), str(model)
    if path.exists() and not _by_chance(model, path):
        return Found("path", name, *_checkpoint_in(path))
    if isinstance(model, Path) or name.startswith((".", "~", os.sep)) or name.endswith((".json", ".safetensors")):
        raise NotFound(f"There is nothing at {path}.", hint=_near(path))
    found = _at_home(name) or _cached(name)
    if found is not None:
        return found
    if hub.is_id(name):
        return Found("hub", name, hub.fetch(name, ask or _nobody, offline=offline))
    raise _unknown(name)


def _by_chance(model: str | Path, path: Path) -> bool:
    """A folder of this name that is no model does not hide the run that the name means."""
    marks = ("config.json", "tokenizer.json", "manifest.json", "checkpoints")
    if isinstance(model, Path) or len(path.parts) > 1 or not path.is_dir():
        return False
    known = str(model) in runs() or str(model) in built_in()
    return known and not any((path / mark).exists() for mark in marks)


def _at_home(name: str) -> Found | None:
    here, ready = runs(), built_in()
    if name in here:
        return Found("run", name, *_checkpoint_in(here[name]))
    if name in ready:
        return Found("built-in", name, ready[name])
    begun = [run for run in here if run.startswith(name)]
    if len(begun) > 1:
        raise NotFound(f'"{name}" could be {", ".join(begun[:5])}.', hint="Type one more letter.")
    return Found("run", begun[0], *_checkpoint_in(here[begun[0]])) if begun else None


def _cached(name: str) -> Found | None:
    folder = hub.cached(name) if hub.is_id(name) else None
    return Found("hub", name, folder) if folder is not None else None


def _checkpoint_in(path: Path) -> tuple[Path, bool]:
    """The folder itself, or for a run the newest checkpoint in it, which was found to be whole."""
    if not (path / "checkpoints").is_dir() or ((path / "config.json").is_file() and not checkpoints(path)):
        return path, False
    folder, damaged = latest(path)
    if damaged:
        names = ", ".join(each.name for each in damaged)
        warnings.warn(f"{path}: {names} is damaged; {folder.name} is used instead.", stacklevel=3)
    return folder, True


def _nobody(question: str) -> bool:
    raise UsageError(f"{question} Nobody was there to say yes.", hint="Say yes beforehand: yes=True, or --yes.")


def _unknown(name: str) -> NotFound:
    near = did_you_mean(name, [*runs(), *built_in(), *hub.all_cached(), *hub.WITHOUT_OWNER])
    return NotFound(f'No model "{name}".', hint=f"{near + ' ' if near else ''}See all: peasy models")


def _near(path: Path) -> str | None:
    try:
        return did_you_mean(path.name, (other.name for other in path.parent.iterdir()))
    except OSError:
        return None
