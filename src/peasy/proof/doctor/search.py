"""Search for the variant of the formula, with the fewest mistakes, that reproduces the observed outputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from peasy.proof.doctor.diagnosis import Difference
from peasy.proof.doctor.mistake import Mistake
from peasy.proof.doctor.variant import Array, Case, Variant, compute

CLOSE = 1e-4
"""The code under test computes in float32; the compared values are of order 1."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Inputs and outputs of one call, and the function from a context to such an output (layout, output projection)."""

    case: Case
    found: Array
    finish: Callable[[Array], Array]

    def predict(self, variant: Variant) -> Array:
        """Return the output that a variant would give."""
        with np.errstate(invalid="ignore"):
            return self.finish(compute(variant, self.case)[0])


@dataclass(frozen=True)
class Explanation:
    """A variant that reproduces all observations, and its mistakes."""

    variant: Variant
    mistakes: tuple[Mistake, ...] = ()


def explain(
    observations: Sequence[Observation],
    bases: Sequence[Variant],
    mistakes: Iterable[Mistake] = (),
    counts: Iterable[int] = (0, 1),
) -> Explanation | None:
    """Return the first variant that reproduces every observation, for each number of mistakes in `counts`."""
    candidates = list(mistakes)
    for count in counts:
        for base in bases:
            for combination in combinations(candidates, count):
                for variant in _changed(base, combination):
                    if all(agrees(observation, variant) for observation in observations):
                        return Explanation(variant, combination)
    return None


def agrees(observation: Observation, variant: Variant) -> bool:
    """Return whether a variant gives these outputs; fully masked rows (NaN) are not compared."""
    predicted, actual = observation.predict(variant), observation.found
    if predicted.shape != actual.shape:
        return False
    finite = np.isfinite(predicted)
    if finite.mean() < 0.3:
        return False
    errors = np.abs(actual[finite] - predicted[finite])
    return bool(np.all(errors <= CLOSE * max(1.0, float(np.abs(predicted[finite]).max()))))


def first_difference(observation: Observation, right: Variant) -> Difference | None:
    """Return the first value that differs from the formula."""
    expected, actual = observation.predict(right), observation.found
    if expected.shape != actual.shape:
        return None
    tolerance = CLOSE * max(1.0, float(np.nanmax(np.abs(expected))))
    differs = np.isfinite(expected) & ~(np.abs(actual - expected) <= tolerance)
    if not differs.any():
        return None
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    return Difference(index, float(actual[index]), float(expected[index]))


def _changed(base: Variant, chosen: Sequence[Mistake]) -> list[Variant]:
    variants = [base]
    for mistake in chosen:
        variants = [changed for variant in variants for changed in mistake.applied(variant)]
    return variants
