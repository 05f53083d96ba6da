"""Texts that a person brings along: written piece by piece into a folder of peasy's own, under a name we choose."""

import re
import secrets
from pathlib import Path

from peasy.checkpoint.home import home
from peasy.errors import InvalidInput, NoRoom, NotFound

MOST = 200_000_000
"""Bytes of one upload, and with them of all uploads that are kept."""

SUFFIXES = ("txt", "tsv", "jsonl")
_ID = re.compile(r"[0-9a-f]{16}-[A-Za-z0-9_-]{1,40}\.(?:txt|tsv|jsonl)")


def begin(name: str) -> str:
    """The id of a new upload: our number, and what is left of the given name when only plain letters are kept."""
    stem, _, suffix = name.rpartition(".")
    if suffix.lower() not in SUFFIXES:
        stem, suffix = name, "txt"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:40] or "text"
    return f"{secrets.token_hex(8)}-{plain}.{suffix.lower()}"


def add(upload: str, text: str) -> int:
    """Append a piece; how many bytes there are by now."""
    path = place(upload, there=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
    size = sum(each.stat().st_size for each in path.parent.iterdir())
    if size + len(data) > MOST:
        raise NoRoom(f"Uploads may take {MOST:,} bytes together.", hint=f"Delete old ones: {path.parent}")
    with path.open("ab") as file:
        file.write(data)
        return file.tell()


def place(upload: str, there: bool = True) -> Path:
    """Where an upload lies; nothing but our own names is ever looked for."""
    if not _ID.fullmatch(upload):
        raise InvalidInput("That is not the name of an upload.", hint="Upload the text first.")
    path = home() / "uploads" / upload
    if there and not path.is_file():
        raise NotFound("That upload is not here any more.", hint="Upload the text again.")
    return path
