"""`check`: find the wrong cells in hand-worked tables, of one file or of many."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput, NotFound, PeasyError
from peasy.views.check import all_passed, check_document, difference_document, files_document, verdict_sentence
from peasy.views.document import Document
from peasy.worked.checking import CheckedCell, CheckedExample, RowFinding
from peasy.worked.checking.calculations import TextCalculations
from peasy.worked.checking.difference import TableDifference, compare_notes
from peasy.worked.example import Example, read_example
from peasy.worked.tables import CHECKED_SUFFIXES, Notes, read_notes

_NotesSource = str | Path | Notes | Example | Mapping[str, object]

_MAX_FILES = 2_000
"""Maximum number of files of one check."""


class CheckResult(Result):
    """Result of `check`: a verdict on every written cell."""

    title: str
    parts: tuple[CheckedExample, ...]
    calculations: CheckedExample | None = None
    """Calculations of the running text, `1*0 + 2*1 = 2`."""

    @property
    def _all_parts(self) -> tuple[CheckedExample, ...]:
        if self.calculations is None:
            return self.parts
        # Tables that are only given say nothing against calculations that are right.
        given = {"Q", "K", "V"}
        parts = (part for part in self.parts if part.cells or part.rows or part.unread or set(part.unverified) - given)
        return (*parts, self.calculations)

    @property
    def passed(self) -> bool | None:
        """False if something is wrong; None if nothing is wrong but not everything was read; else True."""
        return all_passed(part.passed for part in self._all_parts)

    @property
    def verdict(self) -> str:
        """All findings in one sentence."""
        return verdict_sentence(self._all_parts)

    @property
    def points(self) -> tuple[int, int]:
        """Points and maximum: a point for every cell that is right or follows from an earlier mistake."""
        tables = [table.points for part in self._all_parts for table in part.tables]
        return sum(got for got, _ in tables), sum(most for _, most in tables)

    def document(self) -> Document:
        """The verdict, the findings and the tables with their marks."""
        return check_document(self.title, self._all_parts)

    def data(self) -> JsonDict:
        """`passed`, every checked cell, every inconsistent row, points, and what was not checked or not read."""
        return {
            "title": self.title,
            "passed": self.passed,
            "verdict": self.verdict,
            "points": dict(zip(("got", "of"), self.points, strict=True)),
            "tables": [
                {"table": table.name, "part": part.title, "got": table.points[0], "of": table.points[1]}
                for part in self._all_parts
                for table in part.tables
            ],
            "cells": [_finding_data(part, cell) for part in self._all_parts for cell in part.cells],
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
            "unread": [asdict(unread) | {"part": part.title} for part in self.parts for unread in part.unread],
            "remarks": [remark for part in self.parts for remark in part.remarks],
        }


class CheckFilesResult(Result):
    """Result of `check_files`: one result per file, and the files that could not be read with the reason."""

    results: tuple[tuple[str, CheckResult], ...]
    failures: tuple[tuple[str, str], ...]

    @property
    def passed(self) -> bool | None:
        """False if something is wrong in a file; None if nothing is wrong but not everything was read; else True."""
        passed = all_passed(result.passed for _, result in self.results)
        return None if passed and self.failures else passed

    @property
    def verdict(self) -> str:
        """The files in one sentence."""
        count = Counter({True: "right", False: "wrong", None: "open"}[result.passed] for _, result in self.results)
        read = f"{count['right']} without mistakes, {count['wrong']} with mistakes, {count['open']} not read in full"
        failed = f", {len(self.failures)} not readable" if self.failures else ""
        return f"{len(self.results) + len(self.failures)} files: {read}{failed}."

    def document(self) -> Document:
        """A summary, then the findings of every file."""
        files = [(name, result._all_parts, result.points) for name, result in self.results]
        return files_document(self.verdict, self.passed, files, self.failures)

    def data(self) -> JsonDict:
        """`passed`, and the data of every file."""
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "files": [{"file": name} | result.data() for name, result in self.results],
            "failures": [{"file": name, "reason": reason} for name, reason in self.failures],
        }


class DifferenceResult(Result):
    """Result of `check` with `expected`: what turns the tables of one file into those of the other."""

    title: str
    expected: str
    differences: tuple[TableDifference, ...]

    @property
    def passed(self) -> bool | None:
        """True if all shared tables agree; False if one differs; None if no table is in both."""
        return all(difference.agrees for difference in self.differences) if self.differences else None

    @property
    def verdict(self) -> str:
        """The comparison in one sentence."""
        if not self.differences:
            return "No table is in both files."
        different = [difference.table for difference in self.differences if not difference.agrees]
        return f"{', '.join(different)} differ." if different else "All shared tables agree."

    def document(self) -> Document:
        """Every shared table, with the reason of its difference."""
        return difference_document(self.title, self.expected, self.verdict, self.differences)

    def data(self) -> JsonDict:
        """`passed`, and for every shared table whether it agrees, the largest difference and its reasons."""
        tables = [asdict(difference) for difference in self.differences]
        files = {"mine": self.title, "expected": self.expected}
        return {"passed": self.passed, "verdict": self.verdict, **files, "tables": tables}


def check(notes: _NotesSource) -> CheckResult:
    """Recompute every table in hand-worked notes, as far as the given values allow.

    `notes` may also be an example with `written` tables.

    >>> result = check("notes-i-love-ai")
    >>> result.passed, [cell["written"] for cell in result.data()["cells"] if cell["verdict"] == "wrong"]
    (False, ['2', '2', '0.71'])

    Args:
        notes: A .toml, .md, .txt, .tex, .html, .csv, .ipynb or .xlsx file, or built-in lecture notes.
    """
    read = _read(notes)
    text = TextCalculations(read.text)
    parts = tuple(map(text.check, read.parts))
    kept = tuple(part for part in parts if not text.only_repeats(part))
    return CheckResult(read.title, kept, text.checked(parts))


def check_files(files: Sequence[str | Path]) -> CheckFilesResult:
    """Check many files; a folder stands for all files in it that can be checked.

    A file that cannot be read is listed and does not stop the others.

    Args:
        files: Files or folders.
    """
    results, failures = [], []
    for path in _expand(files):
        try:
            results.append((str(path), check(path)))
        except PeasyError as error:
            failures.append((str(path), f"{error.message} {error.hint or ''}".strip()))
    return CheckFilesResult(tuple(results), tuple(failures))


def compare(notes: _NotesSource, expected: _NotesSource) -> DifferenceResult:
    """Find what turns the tables of `notes` into those of `expected`: scale, mask, softmax axis, a transposed matrix.

    Args:
        notes: A file or built-in notes, as for `check`.
        expected: The other file: another solution, or the output of a program.
    """
    mine, theirs = _read(notes), _read(expected)
    return DifferenceResult(mine.title, theirs.title, tuple(compare_notes(mine.parts, theirs.parts)))


def _read(notes: _NotesSource) -> Notes:
    if isinstance(notes, Mapping):
        notes = read_example(notes)
    if isinstance(notes, Example):
        notes = Notes(notes.title, (notes,), notes.source, notes.description)
    return notes if isinstance(notes, Notes) else read_notes(notes)


def _expand(files: Sequence[str | Path]) -> list[Path]:
    """Return all files, those of folders in alphabetical order; raise if there are none or too many."""
    paths: list[Path] = []
    for path in map(Path, files):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in CHECKED_SUFFIXES and p.is_file())
            paths += [file for file in inside if not any(part.startswith(".") for part in file.relative_to(path).parts)]
        else:
            paths.append(path)
    if not paths:
        raise NotFound("There is no file to check.", hint=f"File types: {', '.join(CHECKED_SUFFIXES)}.")
    if len(paths) > _MAX_FILES:
        raise InvalidInput(f"There are {len(paths):,} files.", hint=f"Check at most {_MAX_FILES:,} at once.")
    return paths


def _finding_data(part: CheckedExample, finding: CheckedCell | RowFinding) -> JsonDict:
    shown = {key: value for key, value in asdict(finding).items() if key not in ("decimals", "value")}
    return shown | {"part": part.title}
