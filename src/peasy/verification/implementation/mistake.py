"""Catalogue of known attention mistakes, the report of those found, and the search for the mistakes of an output."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from peasy import config
from peasy.verification.implementation.call_binding import CallBinding
from peasy.verification.implementation.target import TargetDescription
from peasy.verification.implementation.variant import Array, Variant, VariantInputs, compute_variant
from peasy.verification.verdict import MISTAKE, Diagnosis, FirstDifference, ImplementationFinding

_TOLERANCE = 1e-4
"""The code under test computes in float32; the compared values are of order 1."""


@dataclass(frozen=True)
class Mistake:
    """A mistake: its name, the changes to the formula (`variant_changes`: alternatives), explanation and fix.

    `source_words` are searched in the source for the likely line; `prefer_last`: take the last match, not the first.
    """

    name: str
    description: str
    formula: str
    likely_code: str
    fix: str
    variant_changes: tuple[Mapping[str, str | int | bool], ...] = ()
    source_words: tuple[str, ...] = ()
    level: str = MISTAKE
    prefer_last: bool = False

    def apply_to(self, variant: Variant) -> list[Variant]:
        """Return the variants with this mistake added, where it can apply."""
        applicable = (changes for changes in self.variant_changes if self._is_applicable(variant, changes))
        variants = (replace(variant, **changes) for changes in applicable)  # type: ignore[arg-type]
        return [changed for changed in variants if changed != variant]

    def _is_applicable(self, variant: Variant, changes: Mapping[str, str | int | bool]) -> bool:
        """Causal mistakes need a causal variant, and no line can be wrong twice."""
        correct = Variant(causal=variant.causal, rope=variant.rope)
        if any(key not in ("causal", "rope") and getattr(variant, key) != getattr(correct, key) for key in changes):
            return False
        return "causal" not in changes or variant.causal == 0


@dataclass(frozen=True)
class _Catalogue:
    """All known mistakes: those that show in one call, those that only show with a cache, and three special ones."""

    mistakes: tuple[Mistake, ...]
    cache_mistakes: tuple[Mistake, ...]
    top_left: Mistake
    dropout: Mistake
    nan_rows: Mistake


CATALOGUE = config.read_file(_Catalogue, Path(__file__).with_name("mistakes.toml"))
MISTAKES = CATALOGUE.mistakes


@dataclass
class Report:
    """Mutable state of an examination."""

    description: TargetDescription
    binding: CallBinding
    conventions: list[str] = field(default_factory=list)
    findings: list[ImplementationFinding] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    explained: bool = True
    difference: FirstDifference | None = None

    def add_mistakes(self, *mistakes: Mistake, difference: FirstDifference | None = None) -> None:
        """Add mistakes as findings, each once, with the likely line of the source."""
        for mistake in mistakes:
            if mistake.name not in {finding.name for finding in self.findings}:
                line, code = self.description.source.find_line(mistake.source_words, mistake.prefer_last)
                self.findings.append(ImplementationFinding(
                    mistake.name, mistake.level, mistake.description, mistake.formula, mistake.likely_code, mistake.fix,
                    line, code, difference,
                ))  # fmt: skip

    def set_unexplained(self, call: str, difference: FirstDifference | None = None) -> None:
        """Note that no known mistake explains the outputs of this kind of call."""
        self.explained = False
        self.notes.append(f"No known mistake explains its outputs {call}.")
        self.difference = self.difference or difference

    def to_diagnosis(self, name: str, kind: str) -> Diagnosis:
        """Return the final diagnosis."""
        return Diagnosis(
            name, kind, self.binding.summary(), tuple(self.conventions), tuple(self.findings), tuple(self.checks),
            self.explained, self.difference, tuple(self.notes),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Observation:
    """Inputs and outputs of one call, and the function from a context to such an output (layout, output projection)."""

    inputs: VariantInputs
    actual: Array
    to_output: Callable[[Array], Array]

    def predict(self, variant: Variant) -> Array:
        """Return the output that a variant would give."""
        with np.errstate(invalid="ignore"):
            return self.to_output(compute_variant(variant, self.inputs)[0])

    def matches(self, variant: Variant) -> bool:
        """Return whether a variant gives these outputs; fully masked rows (NaN) are not compared."""
        predicted = self.predict(variant)
        finite = np.isfinite(predicted)
        if predicted.shape != self.actual.shape or finite.mean() < 0.3:
            return False
        errors = np.abs(self.actual[finite] - predicted[finite])
        return bool(np.all(errors <= _TOLERANCE * max(1.0, float(np.abs(predicted[finite]).max()))))

    def first_difference(self, correct: Variant) -> FirstDifference | None:
        """Return the first value that differs from the formula."""
        expected = self.predict(correct)
        if expected.shape != self.actual.shape:
            return None
        tolerance = _TOLERANCE * max(1.0, float(np.nanmax(np.abs(expected))))
        differs = np.isfinite(expected) & ~(np.abs(self.actual - expected) <= tolerance)
        if not differs.any():
            return None
        index = tuple(int(i) for i in np.argwhere(differs)[0])
        return FirstDifference(index, float(self.actual[index]), float(expected[index]))


def find_variant(
    observations: Sequence[Observation],
    bases: Sequence[Variant],
    mistakes: Iterable[Mistake] = (),
    mistake_counts: Iterable[int] = (0, 1),
) -> tuple[Variant, tuple[Mistake, ...]] | None:
    """Return the first variant that reproduces every observation, and its mistakes; fewest mistakes first."""
    candidates = list(mistakes)
    for count in mistake_counts:
        for base in bases:
            for combination in combinations(candidates, count):
                variants = [base]
                for mistake in combination:
                    variants = [changed for variant in variants for changed in mistake.apply_to(variant)]
                for variant in variants:
                    if all(observation.matches(variant) for observation in observations):
                        return variant, combination
    return None
