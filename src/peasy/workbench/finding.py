"""What looking found, as an answer: a record of plain arrays, drawn by its view."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peasy.formula.step import Step
from peasy.views.document import Document
from peasy.workbench.result import Result

DIGITS = 6
"""So many decimals have numbers in JSON."""


class Finding(Result):
    """A record and how it is drawn; all that the record has can be asked of the finding itself.

    Where the record has a text of its own, `.text` is that; `str(x)` is the drawing.
    """

    text: Any

    def __init__(self, record: Any, draw: Callable[[], Document]) -> None:
        self.record, self._draw = record, draw
        if hasattr(record, "text"):
            self.text = record.text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "record":
            raise AttributeError(name)
        return getattr(self.record, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not hasattr(self.record, "__array__"):
            raise TypeError(f"A {type(self.record).__name__} is no single array.")
        return np.asarray(self.record, dtype=dtype)

    def document(self) -> Document:
        """The record as a document."""
        return self._draw()

    def data(self) -> dict[str, Any]:
        """The record as plain data."""
        return plain(self.record)

    def __str__(self) -> str:
        return self._drawn("text")

    def __repr__(self) -> str:
        return f"{type(self.record).__name__}({getattr(self.record, 'model', '')})"


def plain(value: Any) -> Any:
    """Records as dicts, arrays as lists; numbers rounded to six decimals.

    >>> plain((np.array([[0.12345678]]), {"a": (1, None)}))
    [[[0.123457]], {'a': [1, None]}]
    """
    if isinstance(value, Step):
        return value.name
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f":
            return value.tolist()
        numbers = np.round(value.astype(np.float64), DIGITS)
        return np.where(np.isfinite(numbers), numbers.astype(object), np.array(None)).tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {_name(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return round(float(value), DIGITS) if isinstance(value, float | np.floating) else value


def _name(key: Any) -> str:
    return ".".join(map(str, key)) if isinstance(key, tuple) else str(key)
