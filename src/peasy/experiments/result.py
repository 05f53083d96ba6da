"""Result of an experiment, its tables and curves; the last result of each experiment in the user's data directory."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, get_args

import numpy as np

from peasy import config
from peasy.atomic import write_atomic
from peasy.checkpoint.paths import data_dir
from peasy.commands.result import JsonDict, Result
from peasy.experiments.statistics import Comparison, Outcome, claim_outcome, format_p
from peasy.experiments.stored import SeedsResult, stored_result
from peasy.parameters import Record
from peasy.render import json as plain_json
from peasy.views.document import Curves, Document, DocumentPart, Node, Paragraph, Rows, Table, Vectors

OnStatus = Callable[[str], None]
"""Status callback: a short description of the current step."""

Points = tuple[tuple[float, float], ...]
"""Curve as (x, y) points."""

_NODES: dict[str, type] = {
    plain_json.KINDS.get(node.__name__, node.__name__.lower()): node
    for node in (*get_args(DocumentPart), Node, Rows, Vectors)
}
"""Document nodes by their name in JSON."""

_NUMERIC_FIELDS = ("lines", "values", "points", "shades")
"""Numeric fields, in which a string can only be nan, inf or -inf, which JSON lacks."""

_FORMAT_VERSION = 4
"""Format version; files of other versions are ignored."""


def ignore_status(_: str) -> None:
    """Ignore status messages."""


class ExperimentResult(Result):
    """Claim, numbers that decide it (`verdict`, `comparisons`), caveat; `numbers` is plain data."""

    experiment: str
    claim: str
    question: str
    parts: tuple[DocumentPart, ...] = field(repr=False)
    verdict: str
    comparisons: tuple[Comparison, ...]
    caveat: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def outcome(self) -> Outcome:
        """Outcome of the claim in this one run."""
        return claim_outcome(self.comparisons)

    @property
    def stored(self) -> SeedsResult | None:
        """The result over several seeds that is stored with the package."""
        return stored_result(self.experiment)

    @property
    def holds(self) -> bool:
        """True if the claim is supported without conditions."""
        return self.outcome is Outcome.SUPPORTED

    def document(self) -> Document:
        """Return claim, question, tables and figures, outcome of this run and of the stored seeds, caveat."""
        title = f"This run (seed {self.seed}): {self.outcome}"
        decided: list[DocumentPart] = [table(title, _DECIDING, map(_deciding_row, self.comparisons))]
        conclusions = [Paragraph(self.verdict, _tone(self.outcome))]
        if self.stored is not None:
            decided.append(self.stored.table())
            varied = f"A seed varies: {EXPERIMENTS[self.experiment].seeds}."
            conclusions.append(Paragraph(f"Stored result: {self.stored.origin} {varied}", "note"))
        opening = Paragraph(f"Claim: {self.claim}", "main"), Paragraph(self.question)
        parts = (*opening, *self.parts, *decided, *conclusions, Paragraph(self.caveat, "note"))
        return Document(f"Experiment {self.experiment}", parts, settings=(f"seed: {self.seed}",))

    def data(self) -> JsonDict:
        """Return the fields, the outcome in this run, and the result of the stored seeds."""
        stored = self.stored.data() if self.stored is not None else None
        return super().data() | {"outcome": self.outcome.value, "holds": self.holds, "stored": stored}

    def __repr__(self) -> str:
        return f"ExperimentResult({self.experiment}: {self.outcome}: {self.verdict})"


_DECIDING = (("part of the claim", ""), ("measured", ""), ("control", ""), ("p", ""), ("outcome", ""))


def _deciding_row(part: Comparison) -> tuple[str, ...]:
    p_value = "exact" if part.exact else "needs seeds" if part.p_value is None else format_p(part.p_value)
    sides = f"{part.value_name}: {part.value:.3g}", f"{part.control_name}: {part.control:.3g}"
    return (part.name, *sides, p_value, str(part.outcome))


def _tone(outcome: Outcome) -> str:
    """Tone of a conclusion: only full support is good, only a claim that is not supported is bad."""
    return {Outcome.SUPPORTED: "good", Outcome.NOT_SUPPORTED: "bad"}.get(outcome, "main")


class Experiment(Record):
    """An experiment: name, title, claims it tests, duration; claim as a sentence, question and caveat of its result.

    `seeds`: what a seed varies; `labels`: plain words for names of what is compared.
    """

    name: str
    question: str
    claims: tuple[str, ...]
    duration: str
    claim: str
    full_question: str = field(repr=False)
    caveat: str = field(repr=False)
    seeds: str = field(repr=False)
    labels: dict[str, str] = field(repr=False)


EXPERIMENTS = {
    name: Experiment(name, row.pop("title"), full_question=row.pop("question"), claims=tuple(row.pop("claims")), **row)
    for name, row in config.load(Path(__file__).with_name("experiments.toml")).items()
}
"""All experiments by name, in display order."""


def make_result(
    name: str, parts: Sequence[DocumentPart], verdict: str, comparisons: Sequence[Comparison],
    numbers: Mapping[str, Any], seed: int,
) -> ExperimentResult:  # fmt: skip
    """Return the result of an experiment, with its claim, question and caveat."""
    about, measured = EXPERIMENTS[name], (tuple(parts), verdict, tuple(comparisons))
    return ExperimentResult(name, about.claim, about.full_question, *measured, about.caveat, numbers, seed)


def table(title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Iterable[object]]) -> Table:
    """Return a table of numbers; `columns` are names and number formats. Texts stay as they are.

    >>> table("Loss", [("heads", ""), ("loss", ".2f")], [(1, 0.5), ("all", 2)]).rows
    (('1', '0.50'), ('all', '2.00'))
    """
    names, formats = zip(*columns, strict=True)
    cells = (
        tuple(cell if isinstance(cell, str) else format(cell, spec) for cell, spec in zip(row, formats, strict=True))
        for row in rows
    )
    return Table(names, tuple(cells), title)


def curves(
    title: str, lines: Mapping[str, Mapping[int, float] | Sequence[tuple[float, float]]], x_axis: str, y_axis: str
) -> Curves:
    """Return a line plot; a line is a mapping from x to y, or its points."""
    points = {name: line.items() if isinstance(line, Mapping) else line for name, line in lines.items()}
    drawn = tuple((name, tuple((float(x), y) for x, y in line)) for name, line in points.items())
    return Curves(title, drawn, x_axis, y_axis)


def save_result(result: ExperimentResult) -> Path:
    """Save a result, replacing the previous one."""
    payload = {"format_version": _FORMAT_VERSION, "time": time.time(), "parts": list(result.parts), **result.data()}
    path = _path(result.experiment)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomic(path, plain_json.dump(payload))


def load_result(name: str) -> tuple[ExperimentResult, float] | None:
    """Load the last result of an experiment and its time in seconds since 1970; None without one."""
    try:
        payload = json.loads(_path(name).read_text(encoding="utf-8"))
        if payload["format_version"] != _FORMAT_VERSION or payload["experiment"] != name:
            return None
        payload["parts"] = tuple(map(_read_node, payload["parts"]))
        payload["comparisons"] = tuple(Comparison(**part) for part in payload["comparisons"])
        result = ExperimentResult(**{entry.name: payload[entry.name] for entry in fields(ExperimentResult)})
        return result, float(payload["time"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # an unreadable file is not worth an error: the experiment can be run again


def _path(name: str) -> Path:
    return data_dir() / "experiments" / f"{name}.json"


def _read_node(data: dict[str, Any]) -> Any:
    kind = _NODES[data["kind"]]
    array_fields = {field.name for field in fields(kind) if field.type == "np.ndarray"}
    values = {
        key: _restore(value, key in _NUMERIC_FIELDS or key in array_fields)
        for key, value in data.items()
        if key != "kind"
    }
    values |= {key: np.array(values[key], dtype=float) for key in array_fields}
    return kind(**values | ({"marks": frozenset(values["marks"])} if "marks" in values else {}))


def _restore(value: Any, numeric: bool = False) -> Any:
    """Restore tuples from lists, nodes from dicts and, in numeric fields, non-finite floats from strings."""
    if isinstance(value, list):
        return tuple(_restore(item, numeric) for item in value)
    if isinstance(value, dict):
        return _read_node(value)
    return float(value) if numeric and value in ("nan", "inf", "-inf") else value
