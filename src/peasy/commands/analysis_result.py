"""Result of an analysis: a record of plain arrays, displayed by its view; `to_plain` converts records to JSON data."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peasy.commands.result import Result
from peasy.formula.step import FormulaStep
from peasy.views.document import Document

JSON_DECIMALS = 6
"""Decimals of numbers in JSON."""


class AnalysisResult(Result):
    """Analysis result: a record and the document that displays it; attributes of the record are forwarded.

    If the record has a `text`, `.text` is that attribute; `str(x)` is the displayed document.
    """

    text: Any

    def __init__(self, record: Any, make_document: Callable[[], Document]) -> None:
        self.record, self._make_document = record, make_document
        if hasattr(record, "text"):
            self.text = record.text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "record":
            raise AttributeError(name)
        return getattr(self.record, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not hasattr(self.record, "__array__"):
            raise TypeError(f"{type(self.record).__name__} cannot be converted to a single array.")
        return np.asarray(self.record, dtype=dtype)

    def document(self) -> Document:
        """The record as a document."""
        return self._make_document()

    def data(self) -> dict[str, Any]:
        """The record as plain data."""
        return to_plain(self.record)

    def __str__(self) -> str:
        return self._render("text")

    def __repr__(self) -> str:
        return f"{type(self.record).__name__}({getattr(self.record, 'model', '')})"


def to_plain(value: Any) -> Any:
    """Convert records to dicts and arrays to lists; floats are rounded to six decimals, NaN and inf become None.

    >>> to_plain((np.array([[0.12345678]]), {"a": (1, None)}))
    [[[0.123457]], {'a': [1, None]}]
    """
    if isinstance(value, FormulaStep):
        return value.name
    if hasattr(value, "_asdict"):
        return {name: to_plain(item) for name, item in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f":
            return value.tolist()
        numbers = np.round(value.astype(np.float64), JSON_DECIMALS)
        return np.where(np.isfinite(numbers), numbers.astype(object), np.array(None)).tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {_key_name(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return round(float(value), JSON_DECIMALS) if isinstance(value, float | np.floating) else value


def _key_name(key: Any) -> str:
    return ".".join(map(str, key)) if isinstance(key, tuple) else str(key)
