"""The manifest: which files a checkpoint consists of, with the hash of each, and which versions wrote them."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from peasy import config
from peasy.checkpoint.folder import Folder, short
from peasy.errors import InvalidInput, PeasyError

MANIFEST = "manifest.json"
FORMAT = "peasy-checkpoint"
VERSION = 1


@dataclass(frozen=True)
class FileRecord:
    """Size and SHA-256 of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What stands in `manifest.json`. `notes` is free text of whoever wrote the checkpoint (where it came from).

    `seal` is the hash of all the rest, so that the manifest vouches for itself too; older ones have none.
    """

    files: Mapping[str, FileRecord]
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    format: str = FORMAT
    version: int = VERSION
    seal: str | None = None


def write_manifest(folder: str | Path, notes: Mapping[str, str] | None = None) -> Manifest:
    """Hash every file of the folder and write `manifest.json` beside them, last."""
    folder = Path(folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    files = {name: _record(Folder(folder), name) for name in names}
    manifest = Manifest(files, versions(), dict(notes or {}))
    manifest = replace(manifest, seal=_sealed(manifest))
    (folder / MANIFEST).write_text(_text(manifest), encoding="utf-8")
    return manifest


def read_manifest(folder: Folder) -> Manifest:
    """The manifest of a checkpoint folder, of a format this peasy knows."""
    where = folder.path / MANIFEST
    data = folder.read_json(MANIFEST)
    if data.get("format") != FORMAT:
        raise InvalidInput(f"{where} has format {short(data.get('format'))}, not {FORMAT!r}.")
    if data.get("version") != VERSION:
        hint = "It was written by a newer peasy: upgrade peasy to read it."
        raise InvalidInput(f"{where} has version {short(data.get('version'))}; this peasy reads {VERSION}.", hint=hint)
    return config.read(Manifest, data, where=str(where))


def verify(folder: Folder, manifest: Manifest) -> None:
    """Every file that the manifest names is there and has the bytes that were written; the first that has not is named.

    A file that a reader would open and the manifest does not name is refused as well.
    """
    for name, expected in manifest.files.items():
        found = _record(folder, name)
        if found.bytes != expected.bytes:
            raise _damaged(folder, name, f"has {found.bytes:,} bytes, and {expected.bytes:,} were written")
        if found.sha256 != expected.sha256:
            raise _damaged(folder, name, "is not what was written: its SHA-256 differs from the manifest's")
    for name in folder.names():
        if name.endswith((".safetensors", ".json")) and name not in manifest.files and name != MANIFEST:
            raise _damaged(folder, name, "is not in the manifest")


def verifies(path: str | Path) -> bool:
    """Whether a folder is a whole checkpoint, down to the last letter of its manifest."""
    try:
        folder = Folder(path)
        manifest = read_manifest(folder)
        verify(folder, manifest)
        whole = folder.read(MANIFEST) == _text(manifest).encode()
    except PeasyError:
        return False
    return manifest.seal is None or (whole and manifest.seal == _sealed(manifest))


def versions() -> dict[str, str]:
    """The versions of what a result may depend on."""
    found = {"python": platform.python_version()}
    for name in ("peasy", "torch", "tokenizers", "safetensors", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _text(manifest: Manifest) -> str:
    return json.dumps(config.plain(manifest), indent=2, ensure_ascii=False) + "\n"


def _sealed(manifest: Manifest) -> str:
    return hashlib.sha256(_text(replace(manifest, seal=None)).encode()).hexdigest()


def _record(folder: Folder, name: str) -> FileRecord:
    with folder.open(name) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(file.tell(), digest)


def _damaged(folder: Folder, name: str, fault: str) -> InvalidInput:
    return InvalidInput(f"{folder.path / name} {fault}.", hint="The checkpoint is damaged: use another copy of it.")
