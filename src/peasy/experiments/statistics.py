"""Statistics of experiments: mean with 95 % interval, effect size, permutation tests, outcome of a claim."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from peasy.errors import InvalidInput

ALPHA = 0.05
"""Significance level of every test: how often a claim would pass if chance alone were at work."""

_NUM_PERMUTATIONS = 4999
_T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom."""


class Outcome(StrEnum):
    """Outcome of a claim."""

    SUPPORTED = "supported"
    CONDITIONS = "supported under conditions"
    NOT_SUPPORTED = "not supported"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class MeanInterval:
    """Mean of some values with its 95 % confidence interval (Student's t)."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.count < 2:
            return f"{self.mean:.3g}"
        return f"{self.mean:.3g} (95 % interval {self.low:.3g} to {self.high:.3g}, n = {self.count})"


def mean_interval(values: Sequence[float]) -> MeanInterval:
    """Return the mean and its 95 % interval; one value has no interval.

    >>> mean_interval([1.0, 2.0, 3.0])
    MeanInterval(mean=2.0, low=-0.484..., high=4.484..., count=3)
    """
    array = np.asarray(values, dtype=float)
    if not array.size:
        raise InvalidInput("A mean needs at least one value.")
    mean = float(array.mean())
    if len(array) < 2:
        return MeanInterval(mean, -math.inf, math.inf, 1)
    quantile = _T_QUANTILES[min(len(array) - 1, len(_T_QUANTILES)) - 1]
    half = quantile * float(array.std(ddof=1)) / math.sqrt(len(array))
    return MeanInterval(mean, mean - half, mean + half, len(array))


def effect_size(values: Sequence[float], control: Sequence[float]) -> float:
    """Return Cohen's d: the difference of the means in pooled standard deviations; inf if nothing varies.

    >>> effect_size([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    2.0
    """
    first, second = (np.asarray(side, dtype=float) for side in (values, control))
    difference = float(first.mean() - second.mean())
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (first, second))
    spread = math.sqrt(squares / max(len(first) + len(second) - 2, 1))
    return difference / spread if spread else math.copysign(math.inf, difference) if difference else 0.0


def paired_p_value(values: Sequence[float], control: Sequence[float], seed: int = 0) -> float:
    """Return the one-sided p-value that `values` are larger than their paired `control`, by random signs.

    Under the null hypothesis each difference could as well have the other sign. The smallest possible p-value is
    2^-n: five pairs can reach 0.031, four cannot reach 0.05.

    >>> paired_p_value([2, 3, 4, 5, 6], [1, 1, 1, 1, 1]) < 0.05 < paired_p_value([2, 0, 2], [1, 1, 1])
    True
    """
    differences = np.asarray(values, dtype=float) - np.asarray(control, dtype=float)
    count = len(differences)
    if count <= 12:
        signs = np.array([[1 if number >> bit & 1 else -1 for bit in range(count)] for number in range(2**count)])
        means = (signs * np.abs(differences)).mean(axis=1)
        return float(np.mean(means >= differences.mean() - 1e-12))
    signs = np.random.default_rng(seed).choice((-1, 1), (_NUM_PERMUTATIONS, count))
    means = (signs * np.abs(differences)).mean(axis=1)
    return float((1 + np.sum(means >= differences.mean() - 1e-12)) / (1 + _NUM_PERMUTATIONS))


def can_reach(pairs: int) -> bool:
    """Return whether a paired test of this many pairs can reach the significance level at all.

    >>> can_reach(4), can_reach(5)
    (False, True)
    """
    return 2.0**-pairs < ALPHA


def permutation_p_value(observed: float, permuted: Sequence[float]) -> float:
    """Return the one-sided p-value of a number among those that permuted labels gave.

    >>> permutation_p_value(9.0, [1.0, 2.0, 3.0])
    0.25
    """
    return (1 + sum(value >= observed for value in permuted)) / (1 + len(permuted))


def binomial_p_value(successes: int, trials: int, chance: float) -> float:
    """Return the probability of at least this many successes by chance alone.

    >>> round(binomial_p_value(9, 10, 0.5), 4)
    0.0107
    """
    counts = range(successes, trials + 1)
    return min(
        1.0, sum(math.comb(trials, count) * chance**count * (1 - chance) ** (trials - count) for count in counts)
    )


def decide(p_value: float, *, can_reach: bool = True, conditions: bool = False) -> Outcome:
    """Return the outcome of a claim from its p-value.

    `can_reach`: whether the sample could have shown the effect at all; if not, nothing can be told. `conditions`: the
    claim holds only in a part of what was measured.
    """
    if p_value < ALPHA:
        return Outcome.CONDITIONS if conditions else Outcome.SUPPORTED
    return Outcome.NOT_SUPPORTED if can_reach else Outcome.CANNOT_TELL


def outcome_of(holds: bool) -> Outcome:
    """Return the outcome of a claim that one exact comparison decides, such as equal numbers."""
    return Outcome.SUPPORTED if holds else Outcome.NOT_SUPPORTED


def combine(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a claim with several parts, each of which has to be supported.

    >>> combine([Outcome.SUPPORTED, Outcome.NOT_SUPPORTED]).value
    'supported under conditions'
    """
    kinds = set(outcomes)
    if len(kinds) == 1:
        return outcomes[0]
    if kinds & {Outcome.SUPPORTED, Outcome.CONDITIONS}:
        return Outcome.CONDITIONS
    return Outcome.CANNOT_TELL if Outcome.CANNOT_TELL in kinds else Outcome.NOT_SUPPORTED
