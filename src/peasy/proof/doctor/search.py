"""Which formula computes what the patient computes? The one with the fewest mistakes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from peasy.proof.doctor.diagnosis import Difference
from peasy.proof.doctor.mistake import Mistake
from peasy.proof.doctor.variant import Array, Case, Variant, compute

CLOSE = 1e-4
"""Patients calculate in 32 bits; what is compared is of the size of 1."""


@dataclass(frozen=True, eq=False)
class Observation:
    """What went in, what came out, and how a context becomes such a result (axes, a last map)."""

    case: Case
    found: Array
    finish: Callable[[Array], Array]

    def predict(self, variant: Variant) -> Array:
        """What a variant would have given."""
        with np.errstate(invalid="ignore"):
            return self.finish(compute(variant, self.case)[0])


@dataclass(frozen=True)
class Explanation:
    """A variant that reproduces all observations, and the mistakes in it."""

    variant: Variant
    mistakes: tuple[Mistake, ...] = ()


def explain(
    observations: Sequence[Observation],
    bases: Sequence[Variant],
    mistakes: Iterable[Mistake] = (),
    counts: Iterable[int] = (0, 1),
) -> Explanation | None:
    """The first variant with the fewest mistakes, out of so many, that reproduces every observation."""
    known = list(mistakes)
    for count in counts:
        for base in bases:
            for chosen in combinations(known, count):
                for variant in _changed(base, chosen):
                    if all(agrees(each, variant) for each in observations):
                        return Explanation(variant, chosen)
    return None


def agrees(observation: Observation, variant: Variant) -> bool:
    """Whether a variant gives these numbers, where it gives any: rows that see nothing are no evidence."""
    predicted, found = observation.predict(variant), observation.found
    if predicted.shape != found.shape:
        return False
    sure = np.isfinite(predicted)
    if sure.mean() < 0.3:
        return False
    far = np.abs(found[sure] - predicted[sure])
    return bool(np.all(far <= CLOSE * max(1.0, float(np.abs(predicted[sure]).max()))))


def first_difference(observation: Observation, right: Variant) -> Difference | None:
    """The first number that is not what the formula gives."""
    wanted, found = observation.predict(right), observation.found
    if wanted.shape != found.shape:
        return None
    far = np.isfinite(wanted) & ~(np.abs(found - wanted) <= CLOSE * max(1.0, float(np.nanmax(np.abs(wanted)))))
    if not far.any():
        return None
    index = tuple(int(i) for i in np.argwhere(far)[0])
    return Difference(index, float(found[index]), float(wanted[index]))


def _changed(base: Variant, chosen: Sequence[Mistake]) -> list[Variant]:
    variants = [base]
    for mistake in chosen:
        variants = [changed for variant in variants for changed in mistake.applied(variant)]
    return variants
