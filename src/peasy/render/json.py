"""JSON output: the complete document, numbers at full precision; NaN and infinity become strings."""

import json
import math
from dataclasses import fields, is_dataclass

from peasy.config import JsonValue
from peasy.render import sanitize
from peasy.views.document import Document

KINDS = {"CacheFigure": "cache"}
"""Class name -> `kind` of a part, where it is not the class name in lower case."""


def draw(document: Document) -> str:
    """Render the document as JSON; each part has its `kind`."""
    return dump(to_plain(document))


def dump(data: object) -> str:
    """Return plain data as strictly valid JSON with a final newline."""
    return json.dumps(to_plain(data), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def to_plain(data: object) -> JsonValue:
    """Convert to plain data: dataclasses as dicts without functions, encodable text, NaN and infinity as strings.

    >>> to_plain({"scores": (1.0, float("-inf"))})
    {'scores': [1.0, '-inf']}
    """
    if isinstance(data, str):
        # A lone surrogate cannot be encoded as UTF-8; JSON escapes the rest.
        is_plain = data.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in data)
        return data if is_plain else sanitize.escape_control(data)
    if data is None or isinstance(data, int):
        return data
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if isinstance(data, dict):
        return {str(to_plain(key)): to_plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [to_plain(item) for item in data]
    if is_dataclass(data) and not isinstance(data, type):
        shown = [field.name for field in fields(data) if field.name not in ("explain", "formula")]
        named = {name: to_plain(getattr(data, name)) for name in shown}
        return {"kind": KINDS.get(type(data).__name__, type(data).__name__.lower()), **named}
    if hasattr(data, "tolist"):  # array or NumPy scalar, without importing NumPy
        return to_plain(data.tolist())
    if isinstance(data, frozenset | set):
        return [to_plain(item) for item in sorted(data)]
    return data  # type: ignore[return-value]  # json refuses it
