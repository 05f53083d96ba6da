"""`cache`: files that can be made or downloaded again: where they are, how large they are, and their deletion."""

import shutil
from pathlib import Path

from peasy.atomic import set_aside
from peasy.checkpoint import hub, paths
from peasy.checkpoint.ram import format_bytes
from peasy.commands.result import JsonDict, Result
from peasy.errors import UsageError, lookup
from peasy.parameters import Record
from peasy.views.document import Document, Paragraph, Table

_FOLDERS = {
    "shards": "tokenised training data",
    "cache": "measurements of this machine",
    "experiments": "results of experiments",
    "uploads": "texts that were uploaded to the studio",
}
"""Folders of the data directory whose files are made again when needed, with what they contain."""
_HUB = "hub"


class CacheFolder(Record):
    """Folder of files that can be made or downloaded again."""

    name: str
    contains: str
    folder: Path
    num_files: int
    num_bytes: int


class CacheResult(Result):
    """All cache folders with their sizes; `removed` are those that were deleted just now."""

    folders: tuple[CacheFolder, ...]
    removed: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int:
        """Size of all folders together."""
        return sum(folder.num_bytes for folder in self.folders)

    def document(self) -> Document:
        """Return a table with one row per folder."""
        rows = tuple(
            (f.name, f.contains, f"{f.num_files:,}", format_bytes(f.num_bytes), str(f.folder)) for f in self.folders
        )
        deleted = (Paragraph(f"Deleted: {', '.join(self.removed)}.", "good"),) if self.removed else ()
        note = Paragraph(
            f"Runs and imported models are no cache: {paths.data_dir() / 'runs'} (peasy runs rm, peasy models rm). "
            "The hub folder is shared with other programs that use the Hugging Face hub.",
            "note",
        )
        table = Table(("name", "contains", "files", "size", "folder"), rows)
        return Document("Cache", (*deleted, table, Paragraph(f"Together {format_bytes(self.num_bytes)}."), note))

    def data(self) -> JsonDict:
        """Return the folders with their sizes in bytes."""
        return super().data() | {"num_bytes": self.num_bytes}


def cache() -> CacheResult:
    """List the files that peasy can make or download again, with folder and size.

    >>> [folder.name for folder in cache().folders]
    ['shards', 'cache', 'experiments', 'uploads', 'hub']
    """
    own = ((name, contains, paths.data_dir() / name) for name, contains in _FOLDERS.items())
    shared = (_HUB, "models downloaded from the Hugging Face hub", hub.cache_dir())
    return CacheResult(tuple(_measure(*one) for one in (*own, shared)))


def remove_cache(*names: str, yes: bool = False, confirm: hub.Confirm | None = None) -> CacheResult:
    """Delete cache folders by name, permanently; asks first. Without a name: all but the hub's, which others share."""
    known = {folder.name: folder for folder in cache().folders}
    chosen = [lookup(name, known, "cache folder") for name in names or _FOLDERS]
    size = format_bytes(sum(folder.num_bytes for folder in chosen))
    question = f"Delete {', '.join(folder.name for folder in chosen)} ({size})?"
    if not yes and not (confirm is not None and confirm(question)):
        raise UsageError(f"{question} This was not confirmed.", hint="Confirm with --yes.")
    for folder in chosen:
        if folder.folder.is_dir():
            shutil.rmtree(set_aside(folder.folder, "removed"), ignore_errors=True)
    return CacheResult(cache().folders, tuple(folder.name for folder in chosen))


def _measure(name: str, contains: str, folder: Path) -> CacheFolder:
    # links of the hub's cache point to blobs in the same folder: each is counted once
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()] if folder.is_dir() else []
    return CacheFolder(name, contains, folder, len(files), sum(path.stat().st_size for path in files))
