"""Base class of all command results: display, save, export; results as plain data for JSON."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from inspect import get_annotations
from pathlib import Path
from typing import Any, ClassVar, Self

from peasy import render
from peasy.atomic import write_atomic
from peasy.config import JsonDict as JsonDict
from peasy.display import DisplayMixin
from peasy.parameters import Record
from peasy.render import json
from peasy.views.document import Document

OnProgress = Callable[[int, int], None]
"""Called with the amount done and the total."""


class Result(DisplayMixin, Record, ABC, is_record=False):
    """Result of a command. A subclass with fields is a frozen dataclass; it defines what is shown (`document`).

    Its fields are what it contains (`data`); a field declared with `field(repr=False)` is left out there.
    """

    json_decimals: ClassVar[int | None] = None
    """Decimals of the numbers in `data`; None: all."""

    def __init_subclass__(cls, *, repr: bool = False, **options: object) -> None:
        super().__init_subclass__(repr=repr, is_record=bool(get_annotations(cls)), **options)

    @abstractmethod
    def document(self) -> Document:
        """Return the document to show."""

    def data(self) -> JsonDict:
        """Return what `--json` prints as `result`: plain dicts, lists, numbers and strings."""
        data: JsonDict = plain_data(self, self.json_decimals)
        return data

    def save(self, path: str | Path) -> Path:
        """Write a file; its suffix picks the format: html, svg, png, pdf, tex, md, csv, json, npz or xlsx.

        JSON contains `data()`, as `--json` prints it; all others render `document()`.
        """
        if render.format_of(path) == "json":
            return write_atomic(path, json.dump(self.data()))
        return render.save(self.document(), path)

    def html(self) -> str:
        """Return a self-contained HTML page."""
        return self._render("html")

    def latex(self) -> str:
        """Return a complete LaTeX document."""
        return self._render("tex")

    def markdown(self) -> str:
        """Return Markdown with GitHub tables."""
        return self._render("md")

    def svg(self) -> str:
        """Return the figures side by side as SVG."""
        return self._render("svg")

    def text(self) -> str:
        """Return plain text, 80 columns wide."""
        return self._render("text")

    def __str__(self) -> str:
        return self._render("text")

    def __repr__(self) -> str:
        facts = [str(getattr(self, name)) for name in ("title", "model", "verdict") if hasattr(self, name)]
        return f"{type(self).__name__}({': '.join(facts) or getattr(self, 'name', '')})"

    def _render(self, format: str) -> str:
        rendered = render.draw(self.document(), format)
        assert isinstance(rendered, str)
        return rendered


class RecordResult(Result):
    """Base class of results that are the record of an analysis: `class LensResult(RecordResult, LensTable)`."""

    json_decimals = 6

    @classmethod
    def of(cls, record: object, **context: object) -> Self:
        """Return a record as a result with the same fields; `context` are the fields that the result adds."""
        return cls(**vars(record), **context)


def plain_data(value: object, decimals: int | None = None) -> Any:
    """Convert to plain data: dataclasses and named tuples to dicts, arrays to lists, paths to strings.

    Fields declared with `field(repr=False)` are left out. Floats are rounded to `decimals`, NaN and infinity in arrays
    then become None; a tuple as a key is joined by dots.

    >>> plain_data({("a", 1): (0.12345678, None)}, 6)
    {'a.1': [0.123457, None]}
    """
    match value:
        case Path():
            return str(value)
        case float():
            return value if decimals is None else round(value, decimals)
        case Mapping():
            keys = (".".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in value)
            return {key: plain_data(item, decimals) for key, item in zip(keys, value.values(), strict=True)}
    if is_dataclass(value) and not isinstance(value, type):
        from peasy.formula.step import FormulaStep  # with NumPy, which `peasy --help` does without

        if isinstance(value, FormulaStep):
            return value.name
        return {field.name: plain_data(getattr(value, field.name), decimals) for field in fields(value) if field.repr}
    if hasattr(value, "_asdict"):
        return plain_data(value._asdict(), decimals)
    if isinstance(value, list | tuple):
        return [plain_data(item, decimals) for item in value]
    if not hasattr(value, "tolist"):
        return value
    import numpy as np  # of an array or a NumPy scalar; most commands need no NumPy

    array = np.asarray(value)
    if array.ndim == 0:
        return plain_data(array.tolist(), decimals)
    if array.dtype.kind != "f" or decimals is None:
        return array.tolist()
    numbers = np.round(array.astype(np.float64), decimals)
    return np.where(np.isfinite(numbers), numbers.astype(object), np.array(None)).tolist()
