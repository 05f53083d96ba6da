"""Checkpoint format: a folder with weights, config, tokenizer and a manifest of file hashes and package versions."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from peasy import config as settings
from peasy.atomic import atomic_dir
from peasy.checkpoint.safe_folder import SafeFolder, short_repr, write_json
from peasy.checkpoint.tensors import TensorStore, open_tensors, write_tensors
from peasy.config import JsonDict
from peasy.errors import InvalidInput, NotFound, PeasyError
from peasy.extras import DISTRIBUTION
from peasy.parameters import Record

if TYPE_CHECKING:
    import torch

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"
MANIFEST_FILE = "manifest.json"
_FORMAT_NAME = "peasy-checkpoint"
_FORMAT_VERSION = 1


class _SavesTokenizer(Protocol):
    def save(self, path: Path, /) -> object: ...


TokenizerSource = _SavesTokenizer | str | Path | None
"""Tokenizer to write: anything with `save(path)`, or the path of a tokenizer.json."""


class FileRecord(Record):
    """Size and SHA-256 of one file."""

    bytes: int
    sha256: str


class Manifest(Record):
    """Contents of `manifest.json`. `notes` is free text (where the checkpoint came from).

    `seal` is the hash of all other fields, which protects the manifest itself; older manifests have none.
    """

    files: Mapping[str, FileRecord]
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    format: str = _FORMAT_NAME
    version: int = _FORMAT_VERSION
    seal: str | None = None


class Checkpoint(Record):
    """Contents of a checkpoint folder: `config` as plain data, lazily mapped `tensors`, and the manifest."""

    folder: SafeFolder
    config: JsonDict
    tensors: TensorStore
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
) -> Path:
    """Write a new checkpoint folder atomically; an existing folder is never replaced.

    `target_tokenizer` is for the target side of a translation model with two tokenizers. `extras` are further files.
    """
    with atomic_dir(folder) as temporary:
        write_tensors(temporary, tensors)
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
    return Checkpoint(safe_folder, safe_folder.read_json(CONFIG_FILE), open_tensors(safe_folder), manifest)


def is_checkpoint(folder: str | Path) -> bool:
    """Return whether a folder has a peasy manifest."""
    return (Path(folder) / MANIFEST_FILE).is_file()


def write_tokenizer(path: Path, tokenizer: TokenizerSource) -> None:
    """Write a tokenizer to `path`, from anything with `save(path)` or from a file; None writes nothing."""
    if isinstance(tokenizer, (str, Path)):
        path.write_bytes(Path(tokenizer).read_bytes())
    elif tokenizer is not None:
        tokenizer.save(path)


def write_manifest(folder: str | Path, notes: Mapping[str, str] | None = None) -> Manifest:
    """Hash every file of the folder, then write `manifest.json`."""
    folder = Path(folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != MANIFEST_FILE)
    files = {name: _hash_file(SafeFolder(folder), name) for name in names}
    manifest = Manifest(files, package_versions(), dict(notes or {}))
    manifest = replace(manifest, seal=_compute_seal(manifest))
    (folder / MANIFEST_FILE).write_text(_to_json(manifest), encoding="utf-8")
    return manifest


def read_manifest(folder: SafeFolder) -> Manifest:
    """Read and validate the manifest of a checkpoint folder."""
    where = folder.path / MANIFEST_FILE
    data = folder.read_json(MANIFEST_FILE)
    if data.get("format") != _FORMAT_NAME:
        raise InvalidInput(f"{where} has format {short_repr(data.get('format'))}, not {_FORMAT_NAME!r}.")
    if data.get("version") != _FORMAT_VERSION:
        hint = "It was written by a newer peasy: upgrade peasy to read it."
        message = f"{where} has version {short_repr(data.get('version'))}; this peasy reads version {_FORMAT_VERSION}."
        raise InvalidInput(message, hint=hint)
    return settings.read(Manifest, data, where=str(where))


def verify(folder: SafeFolder, manifest: Manifest) -> None:
    """Compare every file with its size and hash in the manifest; the error names the first mismatch.

    A safetensors or JSON file that the manifest does not list is an error too.
    """
    for name, expected in manifest.files.items():
        actual = _hash_file(folder, name)
        if actual.bytes != expected.bytes:
            raise _damaged_error(folder, name, f"has {actual.bytes:,} bytes instead of {expected.bytes:,}")
        if actual.sha256 != expected.sha256:
            raise _damaged_error(folder, name, "was changed: its SHA-256 differs from the manifest")
    for name in sorted(os.listdir(folder.path)):
        if name.endswith((".safetensors", ".json")) and name not in manifest.files and name != MANIFEST_FILE:
            raise _damaged_error(folder, name, "is not in the manifest")


def is_intact(path: str | Path) -> bool:
    """Return whether a folder is an undamaged checkpoint, manifest included."""
    try:
        folder = SafeFolder(path)
        manifest = read_manifest(folder)
        verify(folder, manifest)
        unchanged = folder.read(MANIFEST_FILE) == _to_json(manifest).encode()
    except PeasyError:
        return False
    return manifest.seal is None or (unchanged and manifest.seal == _compute_seal(manifest))


def package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results may depend on."""
    by_name = {"python": platform.python_version()}
    for name in ("peasy", "torch", "tokenizers", "safetensors", "numpy"):
        try:
            by_name[name] = version(DISTRIBUTION if name == "peasy" else name)
        except PackageNotFoundError:
            continue
    return by_name


def _to_json(manifest: Manifest) -> str:
    return json.dumps(settings.to_plain(manifest), indent=2, ensure_ascii=False) + "\n"


def _compute_seal(manifest: Manifest) -> str:
    return hashlib.sha256(_to_json(replace(manifest, seal=None)).encode()).hexdigest()


def _hash_file(folder: SafeFolder, name: str) -> FileRecord:
    with folder.open(name) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(file.tell(), digest)


def _damaged_error(folder: SafeFolder, name: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{folder.path / name} {problem}.", hint="The checkpoint is damaged; use another copy.")
