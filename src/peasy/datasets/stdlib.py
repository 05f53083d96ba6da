"""Corpus `stdlib`: docstrings, language reference or source code of the installed Python."""

import ast
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from inspect import cleandoc
from pathlib import Path
from typing import Literal

from peasy.datasets.corpus import Corpus, Sample, is_validation
from peasy.errors import NotFound
from peasy.parameters import FrozenSettings

_SKIPPED_FOLDERS = {
    "site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__", "ensurepip",
    "encodings", "idlelib", "turtledemo", "pydoc_data",  # tables, demonstrations, topics
}  # fmt: skip
_MIN_CHARACTERS = 20
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class StdlibConfig(FrozenSettings):
    """Options of `stdlib`."""

    part: Literal["docstrings", "topics", "source"] = "docstrings"
    """Docstrings (English about Python), topics (the language reference) or source (Python code)."""


class Stdlib(Corpus):
    """Texts of the standard library in the order of their names; a tenth of the files or topics is for validation.

    >>> corpus = Stdlib(StdlibConfig("topics"))
    >>> any("assert" in text for text in corpus.documents())
    True
    """

    licence = "PSF-2.0"

    def __init__(self, options: StdlibConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.part, self.name, self.description = options.part, f"stdlib:{options.part}", _DESCRIPTIONS[options.part]

    def read(self, split: str) -> Iterator[Sample]:
        """Yield the texts of the files or topics in this split."""
        for name, texts in self._named_texts():
            if is_validation(name) == (split == "valid"):
                yield from texts

    def notes(self) -> Mapping[str, str]:
        """Return the Python version and the split rule."""
        unit = "topic" if self.part == "topics" else "file"
        notes = {"Python": platform.python_version(), "split": f"one {unit} in ten is for validation, by its name"}
        if self.part != "topics":
            notes["files"] = f"{len(self._files):,}"
        return notes

    def _named_texts(self) -> Iterable[tuple[str, Iterable[str]]]:
        if self.part == "topics":
            return ((name, [text]) for name, text in sorted(_topics().items()))
        if self.part == "docstrings":
            return self._all_docstrings
        sources = ((path.relative_to(_LIBRARY).as_posix(), _read_text(path)) for path in self._files)
        return ((name, [text]) for name, text in sources if len(text) >= _MIN_CHARACTERS)

    @cached_property
    def _all_docstrings(self) -> list[tuple[str, list[str]]]:
        """All docstrings: two megabytes that take seconds to collect."""
        return [(path.relative_to(_LIBRARY).as_posix(), list(_docstrings(path))) for path in self._files]

    @cached_property
    def _files(self) -> list[Path]:
        """The Python files of the library, without installed packages and tests."""
        files: list[Path] = []
        for directory, folders, names in os.walk(_LIBRARY):
            folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
            files += (Path(directory) / name for name in names if name.endswith(".py"))
        if not files:
            raise NotFound(f"This Python has no library source in {_LIBRARY}.", hint="Try stdlib:topics.")
        return sorted(files)


_DESCRIPTIONS = {
    "docstrings": "docstrings of Python's standard library",
    "topics": "the language reference that Python's help() shows",
    "source": "source code of Python's standard library",
}


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise NotFound("This Python was installed without its help topics.", hint="Try stdlib:docstrings.") from None
    return dict(topics)


def _read_text(path: Path) -> str:
    """Return the text of a file; none if it is unreadable, as some test files of Python are on purpose."""
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return ""


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(_read_text(path))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in _definitions(tree):
        docstring = cleandoc(ast.get_docstring(node, clean=False) or "").strip()
        if len(docstring) >= _MIN_CHARACTERS:
            yield docstring


def _definitions(node: ast.AST) -> Iterator[_Definition]:
    """Yield the module and its nested classes and functions; expressions, the bulk of the tree, are skipped."""
    if isinstance(node, _Definition):
        yield node
    for block in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, block, None) or ():
            yield from _definitions(child)
