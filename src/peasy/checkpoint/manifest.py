"""Checkpoint manifest: the files with their SHA-256 hashes, and the package versions that wrote them."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from peasy import config
from peasy.checkpoint.safe_folder import SafeFolder, short_repr
from peasy.errors import InvalidInput, PeasyError

MANIFEST_FILE = "manifest.json"
_FORMAT_NAME = "peasy-checkpoint"
_FORMAT_VERSION = 1


@dataclass(frozen=True)
class FileRecord:
    """Size and SHA-256 of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Contents of `manifest.json`. `notes` is free text (where the checkpoint came from).

    `seal` is the hash of all other fields, which protects the manifest itself; older manifests have none.
    """

    files: Mapping[str, FileRecord]
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    format: str = _FORMAT_NAME
    version: int = _FORMAT_VERSION
    seal: str | None = None


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
    return config.read(Manifest, data, where=str(where))


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
    for name in folder.list_names():
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
            by_name[name] = version(name)
        except PackageNotFoundError:
            continue
    return by_name


def _to_json(manifest: Manifest) -> str:
    return json.dumps(config.to_plain(manifest), indent=2, ensure_ascii=False) + "\n"


def _compute_seal(manifest: Manifest) -> str:
    return hashlib.sha256(_to_json(replace(manifest, seal=None)).encode()).hexdigest()


def _hash_file(folder: SafeFolder, name: str) -> FileRecord:
    with folder.open(name) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(file.tell(), digest)


def _damaged_error(folder: SafeFolder, name: str, problem: str) -> InvalidInput:
    return InvalidInput(f"{folder.path / name} {problem}.", hint="The checkpoint is damaged; use another copy.")
