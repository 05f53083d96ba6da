"""Results over several seeds, stored with the package: values by seed, means, effect sizes, versions, settings hash."""

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from inspect import signature
from platform import python_version
from typing import TypeVar

from peasy.commands.result import JsonDict, Result
from peasy.experiments.statistics import Outcome, SeedsComparison, claim_outcome, format_p, mean_interval
from peasy.views.document import Document, Paragraph, Table

T = TypeVar("T", SeedsComparison, "SeedsResult")

_FOLDER = "results"
_PLAIN = (str, int, float, bool, tuple, list, dict, frozenset, type(None))


@dataclass(frozen=True)
class SeedsResult(Result):
    """Result of an experiment over several seeds: each part of the claim compared with its control, seed by seed."""

    experiment: str
    seeds: tuple[int, ...]
    comparisons: tuple[SeedsComparison, ...]
    settings_hash: str
    versions: dict[str, str]
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """Outcome of the claim over all seeds."""
        return claim_outcome(self.comparisons)

    @property
    def is_stale(self) -> bool:
        """Whether the settings of the experiment have changed since these seeds were run."""
        return self.settings_hash != settings_hash(self.experiment)

    @property
    def verdict(self) -> str:
        """The numbers that decide, in one sentence for each part of the claim."""
        return " ".join(f"{comparison}." for comparison in self.comparisons)

    @property
    def origin(self) -> str:
        """What was run: seeds, versions, settings hash, and whether the settings have changed since."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        stale = " STALE: the settings have changed since; run it again with --seeds." if self.is_stale else ""
        return f"{len(self.seeds)} seeds, {versions}, settings {self.settings_hash}.{stale}"

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
        tone = "good" if self.outcome is Outcome.SUPPORTED else "bad"
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
def settings_hash(name: str) -> str:
    """Return the hash of an experiment's settings: the defaults of its `run` and the constants of its module."""
    module, models = (import_module(f"peasy.experiments.{part}") for part in (name.replace("-", "_"), "models"))
    parameters = signature(module.run).parameters.items()
    defaults = {key: repr(one.default) for key, one in parameters if isinstance(one.default, _PLAIN)}
    constants = {
        key: repr(value)
        for part in (models, module)
        for key, value in vars(part).items()
        if key.isupper() and isinstance(value, _PLAIN) and not key.startswith("__")
    }
    settings = json.dumps([defaults, constants], sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


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
