"""`check`: find the wrong cells in hand-worked tables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peasy.commands.result import Result
from peasy.views.check import check_document, verdict_sentence
from peasy.views.document import Document
from peasy.worked.checking import CheckedExample
from peasy.worked.checking import check as check_example
from peasy.worked.example import Example, read_example
from peasy.worked.tables import Notes, read_notes


@dataclass(frozen=True, repr=False)
class CheckResult(Result):
    """Result of `check`: a verdict on every written cell; `passed` is true if there are no errors beyond rounding."""

    title: str
    parts: tuple[CheckedExample, ...]
    ignored: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return all(part.passed for part in self.parts)

    @property
    def verdict(self) -> str:
        """All findings in one sentence."""
        return verdict_sentence(self.parts)

    def document(self) -> Document:
        """The verdict, the findings and the tables with their marks."""
        return check_document(self.title, self.parts, self.ignored)

    def data(self) -> dict[str, Any]:
        """`passed`, every checked cell, every inconsistent row, and what was not checked."""
        return {
            "title": self.title,
            "passed": self.passed,
            "verdict": self.verdict,
            "cells": [_finding_data(part, cell) for part in self.parts for cell in part.cells],
            "rows": [_finding_data(part, row) for part in self.parts for row in part.rows],
            "blank": [cell for part in self.parts for cell in _blank_cells(part)],
            "unverified": [{"table": name, "part": part.title} for part in self.parts for name in part.unverified],
            "ignored": list(self.ignored),
        }

    def __repr__(self) -> str:
        return f"CheckResult({self.title!r}: {self.verdict})"


def check(notes: str | Path | Notes | Example | Mapping[str, Any]) -> CheckResult:
    """Recompute every table in hand-worked notes, as far as the given values allow.

    `notes` is a .toml, .md, .tex or .csv file whose tables name their step, lecture notes of the library
    (`notes-i-love-ai`), or an example with `written` tables.

    >>> result = check("notes-i-love-ai")
    >>> result.passed, [cell["written"] for cell in result.data()["cells"] if cell["verdict"] == "wrong"]
    (False, ['2', '2', '0.71'])
    """
    if isinstance(notes, Mapping):
        notes = read_example(notes)
    if isinstance(notes, Example):
        notes = Notes(notes.title, (notes,), notes.source, notes.description)
    if not isinstance(notes, Notes):
        notes = read_notes(notes)
    return CheckResult(notes.title, tuple(check_example(part) for part in notes.parts), notes.ignored)


def _finding_data(part: CheckedExample, finding: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(finding).items() if key != "decimals"} | {"part": part.title}


def _blank_cells(part: CheckedExample) -> list[dict[str, str]]:
    return [
        {"table": table.name, "row": table.rows[row], "column": table.columns[column], "part": part.title}
        for table in part.tables
        for row, verdicts in enumerate(table.verdicts)
        for column, verdict in enumerate(verdicts)
        if verdict == "blank"
    ]
