"""Safe reading of untrusted folders: only regular files inside the folder are opened; JSON is parsed strictly."""

import json
import os
import re
import stat
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from peasy.config import JsonDict, parse_json
from peasy.errors import InvalidInput, NotFound, did_you_mean

MIB = 1024 * 1024
_MAX_JSON_BYTES = 64 * MIB
"""Largest JSON file that is read; the largest known tokenizer.json has about half of this."""

_MAX_NAMES_SHOWN = 6
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


class SafeFolder:
    """Reader for the files of one folder, by bare file name.

    Path separators, symlinks out of the folder, pipes and devices are refused before a byte is read.
    The one exception: symlinks of a `huggingface_hub` snapshot into the `blobs` folder beside it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise NotFound(f"Folder {self.path} does not exist.", hint=suggest_sibling(self.path, folders_only=True))
        if not self.path.is_dir():
            raise InvalidInput(f"{self.path} is not a folder.", hint="Give the folder that contains config.json.")
        real = self.path.resolve()
        self._allowed_roots, blobs = [real], real.parent.parent / "blobs"
        is_snapshot = real.parent.name == "snapshots" and real.parent.parent.name.startswith("models--")
        if is_snapshot and blobs.is_dir() and not blobs.is_symlink():
            self._allowed_roots.append(blobs)

    def subfolder(self, name: str) -> "SafeFolder":
        """Return the reader of a real folder in this one; in a snapshot, its files may be links into `blobs`, too."""
        if (self.path / name).is_symlink():
            raise InvalidInput(f"{self.path / name} is a link; it must be a real folder.")
        inner = SafeFolder(self.path / name)
        inner._allowed_roots += self._allowed_roots[1:]
        return inner

    def __repr__(self) -> str:
        return f"SafeFolder({str(self.path)!r})"

    def has(self, name: str) -> bool:
        """Return whether an entry of this name exists."""
        return os.path.lexists(self.path / name)

    def open(self, name: str) -> BufferedReader:
        """Open a regular file of this folder for reading; refuse anything else.

        O_NOFOLLOW closes the race between check and open.
        """
        if not name or name in (".", "..") or "\0" in name or re.search(r"[/\\:]", name):
            raise InvalidInput(f"{self.path} refers to the file {short_repr(name)}: only bare file names are allowed.")
        where = self.path / name
        if not self.has(name):
            raise NotFound(f"{self.path} has no {name}.", hint=did_you_mean(name, sorted(os.listdir(self.path))))
        real = where.resolve()
        if not any(real.is_relative_to(root) for root in self._allowed_roots):
            message = f"{where} is a link that points outside its folder."
            raise InvalidInput(message, hint="Copy the file there instead.")
        if not real.is_file():
            raise InvalidInput(f"{where} is not a regular file.")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(real, flags)
        except OSError as error:
            raise InvalidInput(f"{where} cannot be opened: {error.strerror}.") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise InvalidInput(f"{where} is not a regular file.")
        file = os.fdopen(descriptor, "rb")
        if file.peek(len(_LFS_POINTER)).startswith(_LFS_POINTER):
            file.close()
            raise InvalidInput(f"{where} is a Git LFS pointer, not the file itself.", hint="Fetch it: git lfs pull.")
        return file

    def read(self, name: str, max_bytes: int = _MAX_JSON_BYTES) -> bytes:
        """Return the contents of a file of at most `max_bytes` bytes."""
        with self.open(name) as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise InvalidInput(f"{self.path / name} is larger than the limit of {max_bytes:,} bytes.")
        return data

    def read_json(self, name: str) -> JsonDict:
        """Return the object in a JSON file, parsed strictly (see `parse_json`)."""
        data = parse_json(self.read(name), str(self.path / name))
        if not isinstance(data, dict):
            raise InvalidInput(f"{self.path / name} should contain a JSON object, not {type(data).__name__}.")
        return data


def write_json(path: Path, data: object) -> None:
    """Write plain data as indented JSON."""
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def short_repr(value: object, max_length: int = 80) -> str:
    """Return the repr of a value for an error message, cut to `max_length` characters."""
    text = repr(value[: max_length + 1] if isinstance(value, (str, bytes, list)) else value)
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def join_names(names: Sequence[str]) -> str:
    """Return the first names for an error message, and the number of the others."""
    rest = len(names) - _MAX_NAMES_SHOWN
    return ", ".join(name[:120] for name in names[:_MAX_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


_OTHER_FILES = {
    "adapter_config.json": "It is an adapter (LoRA): merge it with peft: model.merge_and_unload().save_pretrained(DIR)",
    "*.gguf": "GGUF files are written, not read: import the Hugging Face folder that this one was made from.",
    "*.h5": "Weights of TensorFlow are not read: save the model as safetensors with transformers.",
    "*/config.json": "Is it the folder in it? {folder}",
}
"""Files that tell what a folder is which is not a model, and what to do then."""


def hint_for_folder(path: Path) -> str:
    """Return what to do with a folder that has no config.json or no weights."""
    for pattern, hint in _OTHER_FILES.items():
        if found := sorted(path.glob(pattern)):
            return hint.format(folder=found[0].parent)
    return "Give the folder that holds config.json and model.safetensors."


def suggest_sibling(path: Path, *, folders_only: bool = False) -> str | None:
    """Return a "Did you mean" sentence with the nearest name beside a path that does not exist."""
    try:
        siblings = [other.name for other in path.parent.iterdir() if not folders_only or other.is_dir()]
        return did_you_mean(path.name, siblings)
    except OSError:
        return None
