"""Uploaded training texts: appended chunk by chunk to files in peasy's data directory, under generated names."""

import re
import secrets
from pathlib import Path

from peasy.atomic import append_durably, disk_errors
from peasy.checkpoint.paths import data_dir
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable

MAX_TOTAL_BYTES = 200_000_000
"""Limit in bytes of all uploads together."""

SUFFIXES = ("txt", "tsv", "jsonl")
_ID = re.compile(r"[0-9a-f]{16}-[A-Za-z0-9_-]{1,40}\.(?:txt|tsv|jsonl)")


def new_upload_id(file_name: str) -> str:
    """Return a new upload id: a random number and the given name reduced to ASCII letters and digits."""
    stem, _, suffix = file_name.rpartition(".")
    if suffix.lower() not in SUFFIXES:
        stem, suffix = file_name, "txt"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:40] or "text"
    return f"{secrets.token_hex(8)}-{plain}.{suffix.lower()}"


def append_text(upload_id: str, text: str) -> int:
    """Append a chunk and return the upload's size in bytes."""
    path = upload_path(upload_id, must_exist=False)
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        size = sum(file.lstat().st_size for file in path.parent.iterdir())
    data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    if size + len(data) > MAX_TOTAL_BYTES:
        message, hint = f"Uploads are limited to {MAX_TOTAL_BYTES:,} bytes together.", f"Delete old ones: {path.parent}"
        raise ResourceUnavailable(message, hint=hint)
    with disk_errors(path, len(data)), path.open("ab", buffering=0) as output:
        append_durably(output, path, data)
        return output.tell()


def upload_path(upload_id: str, must_exist: bool = True) -> Path:
    """Return the path of an upload; only generated names are accepted."""
    if not _ID.fullmatch(upload_id):
        raise InvalidInput("This is not the id of an upload.", hint="Upload the text first.")
    path = data_dir() / "uploads" / upload_id
    if must_exist and not path.is_file():
        raise NotFound("This upload no longer exists.", hint="Upload the text again.")
    return path
