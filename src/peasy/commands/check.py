"""`check`: find the wrong cells in hand-worked tables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from peasy.commands.result import JsonDict, Result
from peasy.views.check import check_document, verdict_sentence
from peasy.views.document import Document
from peasy.worked.checking import CheckedCell, CheckedExample, RowFinding
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

    def data(self) -> JsonDict:
        """`passed`, every checked cell, every inconsistent row, and what was not checked."""
        return {
            "title": self.title,
            "passed": self.passed,
            "verdict": self.verdict,
            "cells": [_finding_data(part, cell) for part in self.parts for cell in part.cells],
            "rows": [_finding_data(part, row) for part in self.parts for row in part.rows],
            "blank": [
                {"table": table.name, "row": table.rows[row], "column": table.columns[column], "part": part.title}
                for part in self.parts
                for table in part.tables
                for row, verdicts in enumerate(table.verdicts)
                for column, verdict in enumerate(verdicts)
                if verdict == "blank"
            ],
            "unverified": [{"table": name, "part": part.title} for part in self.parts for name in part.unverified],
            "ignored": list(self.ignored),
        }

    def __repr__(self) -> str:
        return f"CheckResult({self.title!r}: {self.verdict})"


def check(notes: str | Path | Notes | Example | Mapping[str, object]) -> CheckResult:
    """Recompute every table in hand-worked notes, as far as the given values allow.

    `notes` may also be an example with `written` tables.

    >>> result = check("notes-i-love-ai")
    >>> result.passed, [cell["written"] for cell in result.data()["cells"] if cell["verdict"] == "wrong"]
    (False, ['2', '2', '0.71'])

    Args:
        notes: A .toml, .md, .tex or .csv file with the name of the step above each table, or built-in lecture notes.
    """
    if isinstance(notes, Mapping):
        notes = read_example(notes)
    if isinstance(notes, Example):
        notes = Notes(notes.title, (notes,), notes.source, notes.description)
    if not isinstance(notes, Notes):
        notes = read_notes(notes)
    return CheckResult(notes.title, tuple(check_example(part) for part in notes.parts), notes.ignored)


def _finding_data(part: CheckedExample, finding: CheckedCell | RowFinding) -> JsonDict:
    return {key: value for key, value in asdict(finding).items() if key != "decimals"} | {"part": part.title}
