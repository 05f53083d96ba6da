"""A checkpoint of peasy: a folder with weights, config, tokenizer and a manifest that vouches for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.manifest import MANIFEST, Manifest, read_manifest, verify, write_manifest
from peasy.checkpoint.tensors import SHARD_BYTES, Tensors, open_tensors, write_tensors
from peasy.commit import committed
from peasy.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    import torch

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TARGET = "target_tokenizer.json"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read: `config` as plain data, `tensors` mapped when asked for, where the tokenizer is."""

    folder: Folder
    config: dict[str, Any]
    tensors: Tensors
    tokenizer: Path | None
    manifest: Manifest


def write_checkpoint(
    folder: str | Path,
    tensors: Mapping[str, "torch.Tensor"],
    config: Mapping[str, Any],
    tokenizer: Any = None,
    *,
    target_tokenizer: Any = None,
    extras: Mapping[str, bytes] | None = None,
    notes: Mapping[str, str] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write a new checkpoint folder in one step; it is there whole or not at all, and never in place of another.

    `tokenizer` is anything with `save(path)`, or the path of a tokenizer.json; `target_tokenizer` the same for the
    answers of a translator that have their own. `extras` are further files by name.
    """
    with committed(folder) as part:
        write_tensors(part, tensors, shard_bytes=shard_bytes)
        (part / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        write_tokenizer(part / TOKENIZER, tokenizer)
        write_tokenizer(part / TARGET, target_tokenizer)
        for name, data in (extras or {}).items():
            assert Path(name).name == name, f"not a bare name: {name}"
            assert not (part / name).exists(), f"written twice: {name}"
            (part / name).write_bytes(data)
        write_manifest(part, notes)
    return Path(folder)


def read_checkpoint(folder: str | Path, *, verified: bool = False) -> Checkpoint:
    """The checkpoint in a folder, after every file of it was found to be what was written.

    `verified` skips the hashing, for a folder that was hashed a moment ago.
    """
    place = Folder(folder)
    if not place.has(MANIFEST):
        hint = "A Hugging Face folder comes in by: peasy import FOLDER" if place.has(CONFIG) else None
        raise NotFound(f"{place.path} is not a checkpoint of peasy: it has no {MANIFEST}.", hint=hint)
    manifest = read_manifest(place)
    if not verified:
        verify(place, manifest)
    if CONFIG not in manifest.files:
        raise InvalidInput(f"{place.path / MANIFEST} does not name {CONFIG}.")
    tokenizer = place.file(TOKENIZER) if TOKENIZER in manifest.files else None
    return Checkpoint(place, place.read_json(CONFIG), open_tensors(place), tokenizer, manifest)


def is_checkpoint(folder: str | Path) -> bool:
    """Whether a folder says of itself that it is a checkpoint of peasy."""
    return (Path(folder) / MANIFEST).is_file()


def write_tokenizer(path: Path, tokenizer: Any) -> None:
    """Put a tokenizer at `path`, from anything with `save(path)` or from a file; None writes nothing."""
    if tokenizer is None:
        return
    if isinstance(tokenizer, (str, Path)):
        path.write_bytes(Path(tokenizer).read_bytes())
    else:
        tokenizer.save(path)
