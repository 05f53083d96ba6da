"""Catalogue of known mistakes of attention: name, explanation, formula and fix (mistakes.toml)."""

import os
from dataclasses import dataclass
from pathlib import Path

from peasy import config
from peasy.verification.implementation.trace import Place
from peasy.verification.verdict import MISTAKE, ImplementationFinding


@dataclass(frozen=True)
class Mistake:
    """A mistake, or a caution: right here, but risky elsewhere."""

    name: str
    description: str
    formula: str
    likely_code: str
    fix: str
    level: str = MISTAKE


@dataclass(frozen=True)
class _Catalogue:
    mistakes: tuple[Mistake, ...]


MISTAKES = {
    each.name: each for each in config.read_file(_Catalogue, Path(__file__).with_name("mistakes.toml")).mistakes
}


def finding(name: str, place: Place | None, file: str = "") -> ImplementationFinding:
    """Return a mistake of the catalogue with its line; the file is named if it is not the examined one."""
    known = MISTAKES[name]
    other = "" if place is None or not file or _is_same(place.file, file) else place.file
    line, code = (None, "") if place is None else (place.line, place.code)
    return ImplementationFinding(
        known.name, known.level, known.description, known.formula, known.likely_code, known.fix, line, code, other
    )


def _is_same(one: str, other: str) -> bool:
    """Return True for one file; code typed into Python has no file, only a name."""
    return one == other or (os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other))
