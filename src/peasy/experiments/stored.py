"""Results over several seeds, stored with the package: values by seed, means, effect sizes, versions, code hash."""

import ast
import hashlib
import json
from dataclasses import fields
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from platform import python_version
from typing import TypeVar

from peasy.commands.result import JsonDict, Result
from peasy.experiments.statistics import Outcome, SeedsComparison, claim_outcome, format_p, mean_interval
from peasy.views.document import Document, Paragraph, Table

T = TypeVar("T", SeedsComparison, "SeedsResult")

_FOLDER = "results"
_NOT_MEASURING = frozenset({"result", "statistics", "stored"})
"""Modules that compare and show values, but do not measure them."""


class SeedsResult(Result, repr=True):
    """Result of an experiment over several seeds: each part of the claim compared with its control, seed by seed."""

    experiment: str
    seeds: tuple[int, ...]
    comparisons: tuple[SeedsComparison, ...]
    code_hash: str
    versions: dict[str, str]
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """Outcome of the claim over all seeds."""
        return claim_outcome(self.comparisons)

    @property
    def is_stale(self) -> bool:
        """Whether the code of the experiment has changed since these seeds were run."""
        return self.code_hash != code_hash(self.experiment)

    @property
    def verdict(self) -> str:
        """The numbers that decide, in one sentence for each part of the claim."""
        return " ".join(f"{comparison}." for comparison in self.comparisons)

    @property
    def origin(self) -> str:
        """What was run: seeds, versions, code hash, and whether the code has changed since."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        stale = " STALE: the code has changed since; run it again with --seeds." if self.is_stale else ""
        return f"{len(self.seeds)} seeds, {versions}, code {self.code_hash}.{stale}"

    def table(self) -> Table:
        """Mean and 95 % interval of each value and its control, effect size, p-value and outcome."""
        rows = tuple(
            (
                part.name, f"{part.value_name}: {_interval(part.values)}",
                f"{part.control_name}: {_interval(part.controls)}",
                "exact" if part.exact else f"{part.effect_size:.1f}", "" if part.exact else format_p(part.p_value),
                str(part.outcome),
            )
            for part in self.comparisons
        )  # fmt: skip
        columns = ("part of the claim", "mean ± 95 % interval", "control", "effect size", "p", "outcome")
        return Table(columns, rows, f"Stored result ({len(self.seeds)} seeds): {self.outcome}")

    def document(self) -> Document:
        """Return the table of the comparisons, the outcome, and what was run."""
        tone = "good" if self.outcome is Outcome.SUPPORTED else "main"
        conclusion = Paragraph(f"{self.outcome.capitalize()}: {self.verdict}", tone)
        return Document(f"Experiment {self.experiment}", (self.table(), conclusion, Paragraph(self.origin, "note")))

    def data(self) -> JsonDict:
        """Return the values by seed; and, computed from them, means with intervals, effect sizes and the outcome."""
        data = super().data()
        for row, part in zip(data["comparisons"], self.comparisons, strict=True):
            sides = {"value": mean_interval(part.values), "control": mean_interval(part.controls)}
            row |= {name: {"mean": by.mean, "low": by.low, "high": by.high} for name, by in sides.items()}
            row |= {"effect_size": part.effect_size, "p_value": part.p_value, "outcome": part.outcome.value}
        computed = {"verdict": self.verdict, "origin": self.origin, "is_stale": self.is_stale}
        return data | {"outcome": self.outcome.value} | computed


def _interval(values: tuple[float, ...]) -> str:
    interval = mean_interval(values)
    half = interval.high - interval.mean
    return f"{interval.mean:.3g} ± {half:.2g}" if interval.count > 1 and half else f"{interval.mean:.3g}"


@cache
def code_hash(name: str) -> str:
    """Return the hash of the code that measures: the experiment's module, and the modules here that it imports from.

    What does not change a number does not change the hash: formatting, comments, docstrings, the text of f-strings,
    and the version of Python. How values are compared and shown is computed when a result is read.
    """
    trees: dict[str, object] = {}
    waiting = {name.replace("-", "_")}
    while waiting:
        module = waiting.pop()
        tree = ast.parse(_source(module))
        trees[module] = _syntax(tree)
        imports = (node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        found = {path.rpartition(".")[2] for path in imports if path.startswith("peasy.experiments.")}
        waiting |= found - trees.keys() - _NOT_MEASURING
    return hashlib.sha256(json.dumps(trees, sort_keys=True).encode()).hexdigest()[:12]


def _source(module: str) -> str:
    return files("peasy.experiments").joinpath(f"{module}.py").read_text(encoding="utf-8")


def _syntax(node: object) -> object:
    """Return a syntax tree as plain data, without docstrings, imports, empty fields and the text of f-strings."""
    if isinstance(node, list):
        return [_syntax(item) for item in node if not _is_text(item)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    if isinstance(node, ast.JoinedStr):
        fields = (("values", [part for part in node.values if isinstance(part, ast.FormattedValue)]) for _ in "1")
    return [type(node).__name__, {name: _syntax(value) for name, value in fields}]


def _is_text(node: object) -> bool:
    is_string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_string or isinstance(node, ast.Import | ast.ImportFrom)


def versions() -> dict[str, str]:
    """Return the versions that numbers can depend on."""
    return {"peasy": import_module("peasy").__version__, "torch": version("torch"), "python": python_version()}


def stored_result(name: str) -> SeedsResult | None:
    """Return the result over several seeds that is stored with the package; None without one."""
    file = files("peasy.experiments") / _FOLDER / f"{name}.json"
    return read_seeds(file.read_text(encoding="utf-8")) if file.is_file() else None


def stored_results() -> dict[str, SeedsResult]:
    """Return all results over several seeds that are stored with the package, by experiment.

    >>> all(len(result.seeds) >= 5 for result in stored_results().values())
    True
    """
    from peasy.experiments.result import EXPERIMENTS

    return {name: stored for name in EXPERIMENTS if (stored := stored_result(name)) is not None}


def read_seeds(text: str) -> SeedsResult:
    """Read a saved result; what is computed from the values is computed again."""
    data = json.loads(text)
    data["comparisons"] = tuple(_read_fields(SeedsComparison, row) for row in data["comparisons"])
    return _read_fields(SeedsResult, data)


def _read_fields(kind: type[T], data: JsonDict) -> T:
    values: JsonDict = {field.name: data[field.name] for field in fields(kind)}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return kind(**values)
