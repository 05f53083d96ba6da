"""Somebody's notes: a file of tables in TOML, Markdown, LaTeX or CSV, read as examples with written tables."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from peasy import config
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.worked.example import Example
from peasy.worked.tables import csv, latex, markdown
from peasy.worked.tables.sheet import Sheet

LARGEST = 4_000_000
"""Bytes; notes are written by hand."""

READERS: dict[str, Callable[[str], Sheet]] = {
    ".md": markdown.read, ".markdown": markdown.read, ".txt": markdown.read,
    ".tex": latex.read, ".csv": csv.read, ".tsv": csv.read,
}  # fmt: skip
"""What each kind of file is read by; .toml and .json hold examples themselves."""


@dataclass(frozen=True)
class Notes:
    """A document's tables. Each part has its own tokens, inputs and settings; most notes have one part."""

    title: str
    parts: tuple[Example, ...]
    source: str = ""
    says: str = ""
    ignored: tuple[str, ...] = ()


def read_notes(path: str | Path) -> Notes:
    """The notes in a file, or those of the library that have this name."""
    path = Path(path)
    library = _as_written()
    if not path.exists() and path.name.removesuffix(".toml") in library and len(path.parts) == 1:
        path = library[path.name.removesuffix(".toml")]
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".json", *READERS):
        _must_exist(path)
        known = ", ".join([".toml", ".json", *READERS])
        raise InvalidInput(f"{path.name} is of no kind that can be checked.", hint=f"Kinds: {known}.")
    text = _text(path)
    if suffix in (".toml", ".json"):
        return _from_data(config.load(path), path.name)
    return read_text(text, suffix, path.name)


def read_text(text: str, suffix: str = ".md", name: str = "notes") -> Notes:
    """The notes in a text of the kind that `suffix` names."""
    sheet = READERS[suffix](text)
    try:
        example = sheet.example(str(sheet.settings.get("title", Path(name).stem)))
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error.message}", hint=error.hint) from None
    return Notes(example.title, (example,), ignored=tuple(sheet.ignored))


def as_written_names() -> tuple[str, ...]:
    """The documents of the library, as their authors wrote them."""
    return tuple(sorted(_as_written()))


def _as_written() -> dict[str, Path]:
    folder = Path(str(files("peasy.worked").joinpath("library", "as-written")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _must_exist(path: Path) -> None:
    if not path.exists():
        near = did_you_mean(path.name, [*(each.name for each in _neighbours(path)), *_as_written()])
        raise NotFound(f"There is no file {path}.", hint=near or "peasy check takes a .toml, .md, .tex or .csv file.")
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file.")


def _neighbours(path: Path) -> list[Path]:
    try:
        return [each for each in path.parent.iterdir() if each.suffix in (".toml", ".json", *READERS)][:1000]
    except OSError:
        return []


def _text(path: Path) -> str:
    _must_exist(path)
    try:
        if path.stat().st_size > LARGEST:
            raise InvalidInput(
                f"{path.name} has {path.stat().st_size:,} bytes.", hint=f"Notes have at most {LARGEST:,}."
            )
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path.name} is not a text (UTF-8).") from None
    except OSError as error:
        raise InvalidInput(f"{path.name} cannot be read: {error.strerror}.") from None
    if "\0" in text:
        raise InvalidInput(f"{path.name} is not a text: it holds zero bytes.")
    if not text.strip():
        raise InvalidInput(
            f"{path.name} is empty.", hint="Notes hold tables with the step above each: X, W_Q, scores ..."
        )
    return text


def _from_data(data: Any, name: str) -> Notes:
    if isinstance(data, dict):
        data = {"title": Path(name).stem} | data
    if isinstance(data, dict) and "parts" in data:
        parts = data["parts"] if isinstance(data["parts"], list) else []
        data = {key: value for key, value in data.items() if key != "ignored"} | {
            "parts": [_listed(each) for each in parts]
        }
        notes = config.read(Notes, data, where=name)
    else:
        example = config.read(Example, _listed(data), where=name)
        notes = Notes(example.title, (example,), example.source, example.says)
    if not any(part.written for part in notes.parts):
        raise InvalidInput(f"{name} has no written tables to check.", hint='Add them: [[written]] table = "scores" ...')
    return notes


def _listed(example: Any) -> Any:
    """Written tables by name, `[written] scores = [...]`, in the longer form that also names rows and columns."""
    if not isinstance(example, dict) or not isinstance(example.get("written"), dict):
        return example
    return example | {"written": [{"table": table, "cells": cells} for table, cells in example["written"].items()]}
