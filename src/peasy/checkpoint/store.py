"""Checkpoint format: a folder with weights, config, tokenizer and a manifest of file hashes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from peasy.atomic import atomic_dir
from peasy.checkpoint.manifest import MANIFEST_FILE, Manifest, read_manifest, verify, write_manifest
from peasy.checkpoint.safe_folder import SafeFolder, write_json
from peasy.checkpoint.tensors import SHARD_BYTES, TensorStore, open_tensors, write_tensors
from peasy.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    import torch

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"


class _SavesTokenizer(Protocol):
    def save(self, path: Path, /) -> object: ...


TokenizerSource = _SavesTokenizer | str | Path | None
"""Tokenizer to write: anything with `save(path)`, or the path of a tokenizer.json."""


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint folder: `config` as plain data, lazily mapped `tensors`, path of the tokenizer."""

    folder: SafeFolder
    config: dict[str, Any]
    tensors: TensorStore
    tokenizer_path: Path | None
    manifest: Manifest


def write_checkpoint(
    folder: str | Path,
    tensors: Mapping[str, "torch.Tensor"],
    config: Mapping[str, object],
    tokenizer: TokenizerSource = None,
    *,
    target_tokenizer: TokenizerSource = None,
    extras: Mapping[str, bytes] | None = None,
    notes: Mapping[str, str] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write a new checkpoint folder atomically; an existing folder is never replaced.

    `tokenizer` is anything with `save(path)`, or the path of a tokenizer.json; `target_tokenizer` the same for the
    target side of a translation model with two tokenizers. `extras` are further files by name.
    """
    with atomic_dir(folder) as temporary:
        write_tensors(temporary, tensors, shard_bytes=shard_bytes)
        write_json(temporary / CONFIG_FILE, config)
        write_tokenizer(temporary / TOKENIZER_FILE, tokenizer)
        write_tokenizer(temporary / TARGET_TOKENIZER_FILE, target_tokenizer)
        for name, data in (extras or {}).items():
            assert Path(name).name == name, f"not a bare name: {name}"
            assert not (temporary / name).exists(), f"written twice: {name}"
            (temporary / name).write_bytes(data)
        write_manifest(temporary, notes)
    return Path(folder)


def read_checkpoint(folder: str | Path, *, verified: bool = False) -> Checkpoint:
    """Read a checkpoint folder after comparing every file with its hash in the manifest.

    `verified` skips the hashing, for a folder that was hashed a moment ago.
    """
    safe_folder = SafeFolder(folder)
    if not safe_folder.has(MANIFEST_FILE):
        hint = "To import a Hugging Face folder: peasy import FOLDER" if safe_folder.has(CONFIG_FILE) else None
        raise NotFound(f"{safe_folder.path} is not a peasy checkpoint: it has no {MANIFEST_FILE}.", hint=hint)
    manifest = read_manifest(safe_folder)
    if not verified:
        verify(safe_folder, manifest)
    if CONFIG_FILE not in manifest.files:
        raise InvalidInput(f"{safe_folder.path / MANIFEST_FILE} does not list {CONFIG_FILE}.")
    tokenizer = safe_folder.resolve_file(TOKENIZER_FILE) if TOKENIZER_FILE in manifest.files else None
    return Checkpoint(safe_folder, safe_folder.read_json(CONFIG_FILE), open_tensors(safe_folder), tokenizer, manifest)


def is_checkpoint(folder: str | Path) -> bool:
    """Return whether a folder has a peasy manifest."""
    return (Path(folder) / MANIFEST_FILE).is_file()


def write_tokenizer(path: Path, tokenizer: TokenizerSource) -> None:
    """Write a tokenizer to `path`, from anything with `save(path)` or from a file; None writes nothing."""
    if isinstance(tokenizer, (str, Path)):
        path.write_bytes(Path(tokenizer).read_bytes())
    elif tokenizer is not None:
        tokenizer.save(path)
