"""Resolve a MODEL argument: path, run, built-in model, prefix of a run's name, or hub id, in this order."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peasy.checkpoint import hub
from peasy.checkpoint.paths import find_runs, latest_checkpoint, list_checkpoints
from peasy.checkpoint.safe_folder import suggest_sibling
from peasy.errors import NotFound, UsageError, did_you_mean


@dataclass(frozen=True)
class ResolvedModel:
    """Location of a model: `name` resolves to it again; `folder` has config.json or tokenizer.json.

    `verified`: its files were just compared with their manifest.
    """

    kind: Literal["path", "run", "built-in", "hub"]
    name: str
    folder: Path
    verified: bool = False


def built_in_models() -> dict[str, Path]:
    """Return the models that are shipped with peasy."""
    parent = Path(__file__).parent.parent / "models" / "built_in"
    return {folder.name: folder for folder in sorted(parent.glob("*")) if (folder / "manifest.json").is_file()}


def resolve_model(model: str | Path, *, offline: bool = False, confirm: hub.Confirm | None = None) -> ResolvedModel:
    """Find a model by the name or path that a user typed; a download starts only if `confirm` returns True.

    Without `confirm` nothing is downloaded.
    """
    if not str(model).strip():
        raise UsageError("No model was given.", hint="List the available models: peasy models")
    path, name = Path(model).expanduser(), str(model)
    if path.exists() and not _is_unrelated_folder(model, path):
        return ResolvedModel("path", name, *_select_checkpoint(path))
    if isinstance(model, Path) or name.startswith((".", "~", os.sep)) or name.endswith((".json", ".safetensors")):
        raise NotFound(f"{path} does not exist.", hint=suggest_sibling(path))
    local = _find_local(name) or _find_in_hub_cache(name)
    if local is not None:
        return local
    if hub.is_hub_id(name):
        return ResolvedModel("hub", name, hub.fetch_model(name, confirm or _refuse_download, offline=offline))
    raise _unknown_model_error(name)


def _is_unrelated_folder(model: str | Path, path: Path) -> bool:
    """Return whether `path` is an unrelated folder that happens to have the name of a run or built-in model."""
    model_files = ("config.json", "tokenizer.json", "manifest.json", "checkpoints")
    if isinstance(model, Path) or len(path.parts) > 1 or not path.is_dir():
        return False
    known = str(model) in find_runs() or str(model) in built_in_models()
    return known and not any((path / file).exists() for file in model_files)


def _find_local(name: str) -> ResolvedModel | None:
    run_paths, shipped = find_runs(), built_in_models()
    if name in run_paths:
        return ResolvedModel("run", name, *_select_checkpoint(run_paths[name]))
    if name in shipped:
        return ResolvedModel("built-in", name, shipped[name])
    matches = [run for run in run_paths if run.startswith(name)]
    if len(matches) > 1:
        raise NotFound(f'"{name}" is ambiguous: {", ".join(matches[:5])}.', hint="Type more letters of the name.")
    return ResolvedModel("run", matches[0], *_select_checkpoint(run_paths[matches[0]])) if matches else None


def _find_in_hub_cache(name: str) -> ResolvedModel | None:
    folder = hub.find_cached(name) if hub.is_hub_id(name) else None
    return ResolvedModel("hub", name, folder) if folder is not None else None


def _select_checkpoint(path: Path) -> tuple[Path, bool]:
    """Return (folder, verified): the folder itself, or the newest undamaged checkpoint of a run."""
    if not (path / "checkpoints").is_dir() or ((path / "config.json").is_file() and not list_checkpoints(path)):
        return path, False
    folder, damaged = latest_checkpoint(path)
    if damaged:
        names = ", ".join(skipped.name for skipped in damaged)
        warnings.warn(f"{path}: {names} is damaged; using {folder.name} instead.", stacklevel=3)
    return folder, True


def _refuse_download(question: str) -> bool:
    raise UsageError(f"{question} This needs confirmation.", hint="Confirm in advance with yes=True, or --yes.")


def _unknown_model_error(name: str) -> NotFound:
    suggestion = did_you_mean(name, [*find_runs(), *built_in_models(), *hub.list_cached(), *hub.LEGACY_IDS])
    return NotFound(f'No model "{name}".', hint=f"{suggestion + ' ' if suggestion else ''}See all: peasy models")
