"""JSON output: the complete document, numbers at full precision; NaN and infinity become strings."""

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from peasy.render import glyph
from peasy.views.document import Document


def draw(document: Document) -> str:
    """Render the document as JSON; each part has its `kind`."""
    return dump(plain(document))


def dump(data: Any) -> str:
    """Return plain data as strictly valid JSON with a final newline."""
    return json.dumps(plain(data), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def plain(thing: Any) -> Any:
    """Convert to plain data: dataclasses as dicts without functions, encodable text, NaN and infinity as strings.

    >>> plain({"scores": (1.0, float("-inf"))})
    {'scores': [1.0, '-inf']}
    """
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else str(thing)
    if isinstance(thing, str):
        # A lone surrogate cannot be encoded as UTF-8; JSON escapes the rest.
        return thing if _writable(thing) else glyph.tame(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        named = {field.name: plain(getattr(thing, field.name)) for field in fields(thing) if field.name != "explain"}
        return {"kind": type(thing).__name__.lower(), **named}
    if hasattr(thing, "tolist"):  # array or NumPy scalar, without importing NumPy
        return plain(thing.tolist())
    if isinstance(thing, dict):
        return {str(plain(key)): plain(value) for key, value in thing.items()}
    if isinstance(thing, frozenset | set):
        return [plain(item) for item in sorted(thing)]
    if isinstance(thing, list | tuple):
        return [plain(item) for item in thing]
    return thing


def _writable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
