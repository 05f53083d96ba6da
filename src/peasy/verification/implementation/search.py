"""Search for the variant of the formula, with the fewest mistakes, that reproduces the observed outputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from peasy.verification.implementation.diagnosis import FirstDifference
from peasy.verification.implementation.mistake import Mistake
from peasy.verification.implementation.variant import Array, Variant, VariantInputs, compute_variant

TOLERANCE = 1e-4
"""The code under test computes in float32; the compared values are of order 1."""


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


@dataclass(frozen=True)
class VariantMatch:
    """A variant that reproduces all observations, and its mistakes."""

    variant: Variant
    mistakes: tuple[Mistake, ...] = ()


def find_variant(
    observations: Sequence[Observation],
    bases: Sequence[Variant],
    mistakes: Iterable[Mistake] = (),
    mistake_counts: Iterable[int] = (0, 1),
) -> VariantMatch | None:
    """Return the first variant that reproduces every observation, for each number of mistakes in `mistake_counts`."""
    candidates = list(mistakes)
    for count in mistake_counts:
        for base in bases:
            for combination in combinations(candidates, count):
                for variant in _apply_mistakes(base, combination):
                    if all(reproduces(observation, variant) for observation in observations):
                        return VariantMatch(variant, combination)
    return None


def reproduces(observation: Observation, variant: Variant) -> bool:
    """Return whether a variant gives these outputs; fully masked rows (NaN) are not compared."""
    predicted, actual = observation.predict(variant), observation.actual
    if predicted.shape != actual.shape:
        return False
    finite = np.isfinite(predicted)
    if finite.mean() < 0.3:
        return False
    errors = np.abs(actual[finite] - predicted[finite])
    return bool(np.all(errors <= TOLERANCE * max(1.0, float(np.abs(predicted[finite]).max()))))


def first_difference(observation: Observation, correct: Variant) -> FirstDifference | None:
    """Return the first value that differs from the formula."""
    expected, actual = observation.predict(correct), observation.actual
    if expected.shape != actual.shape:
        return None
    tolerance = TOLERANCE * max(1.0, float(np.nanmax(np.abs(expected))))
    differs = np.isfinite(expected) & ~(np.abs(actual - expected) <= tolerance)
    if not differs.any():
        return None
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    return FirstDifference(index, float(actual[index]), float(expected[index]))


def _apply_mistakes(base: Variant, mistakes: Sequence[Mistake]) -> list[Variant]:
    variants = [base]
    for mistake in mistakes:
        variants = [changed for variant in variants for changed in mistake.apply_to(variant)]
    return variants
