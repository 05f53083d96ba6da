"""A document as JSON: everything in it, numbers at full precision; what JSON has no number for becomes a word."""

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from peasy.render import glyph
from peasy.views.document import Document


def draw(document: Document) -> str:
    """The document as JSON; each part says its `kind`."""
    return dump(plain(document))


def dump(data: Any) -> str:
    """Any plain data as JSON that every reader accepts, one line end at its end."""
    return json.dumps(plain(data), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def plain(thing: Any) -> Any:
    """Records as dicts, functions left out, texts made harmless, NaN and infinity as words.

    >>> plain({"scores": (1.0, float("-inf"))})
    {'scores': [1.0, '-inf']}
    """
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else str(thing)
    if isinstance(thing, str):
        # A lone half of a character cannot be written as UTF-8; JSON itself escapes the rest.
        return thing if _writable(thing) else glyph.tame(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        named = {each.name: plain(getattr(thing, each.name)) for each in fields(thing) if each.name != "explain"}
        return {"kind": type(thing).__name__.lower(), **named}
    if hasattr(thing, "tolist"):  # an array or one of its numbers; a page of help needs no NumPy to know that
        return plain(thing.tolist())
    if isinstance(thing, dict):
        return {str(plain(key)): plain(value) for key, value in thing.items()}
    if isinstance(thing, frozenset | set):
        return [plain(each) for each in sorted(thing)]
    if isinstance(thing, list | tuple):
        return [plain(each) for each in thing]
    return thing


def _writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
