"""Statistics of experiments: mean with 95 % interval, effect size, permutation tests, outcome of a claim.

A claim is decided by comparisons, each of a measured value with its control, in one run or over several seeds.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np

from peasy.errors import InvalidInput
from peasy.parameters import Record

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


class MeanInterval(Record):
    """Mean of some values with its 95 % confidence interval (Student's t)."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        if self.count < 2:
            return f"{self.mean:.3g}"
        if self.low == self.high:
            return f"{self.mean:.3g} (n = {self.count})"
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


def format_p(p_value: float) -> str:
    """Format a p-value with three decimals.

    >>> format_p(0.03125), format_p(0.0002)
    ('0.031', '< 0.001')
    """
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


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


def least_above_chance(trials: int, chance: float) -> float:
    """Return the smallest fraction of successes that is significantly above chance; more than 1 if none is.

    >>> least_above_chance(50, 0.5), least_above_chance(4, 0.5)
    (0.64, 1.25)
    """
    counts = range(trials + 1)
    return next((k for k in counts if binomial_p_value(k, trials, chance) < ALPHA), trials + 1) / trials


def decide(p_value: float, *, can_reach: bool = True) -> Outcome:
    """Return the outcome of a claim from its p-value.

    `can_reach`: whether the sample could have shown the effect at all; if not, nothing can be told.
    """
    if not can_reach:
        return Outcome.CANNOT_TELL
    return Outcome.SUPPORTED if p_value < ALPHA else Outcome.NOT_SUPPORTED


class Comparison(Record):
    """One part of a claim: a measured value that must be larger than its control, or `lower`.

    `exact`: one comparison decides, such as equal numbers or an identity of the formula. Otherwise `p_value` of a test
    within the run (over texts or words) decides; without one (None), only several seeds can tell.
    """

    name: str
    value_name: str
    value: float
    control_name: str
    control: float
    lower: bool = False
    exact: bool = False
    p_value: float | None = None

    @classmethod
    def of_pairs(
        cls, name: str, value_name: str, values: Sequence[float], control_name: str, controls: Sequence[float], *,
        lower: bool = False,
    ) -> "Comparison":  # fmt: skip
        """Compare paired samples of one run by a permutation test; too few of them give no p-value."""
        larger, smaller = (controls, values) if lower else (values, controls)
        p_value = paired_p_value(larger, smaller) if can_reach(len(values)) else None
        value, control = (float(np.mean(np.asarray(side, dtype=float))) for side in (values, controls))
        return cls(name, value_name, value, control_name, control, lower, p_value=p_value)

    @property
    def outcome(self) -> Outcome:
        """Outcome of this part in this run."""
        if self.exact:
            return _exact_outcome([self.value], [self.control], self.lower)
        return Outcome.CANNOT_TELL if self.p_value is None else decide(self.p_value)


class SeedsComparison(Record):
    """One part of a claim over several seeds: `values` and `controls` by seed, compared in pairs."""

    name: str
    value_name: str
    values: tuple[float, ...]
    control_name: str
    controls: tuple[float, ...]
    lower: bool = False
    exact: bool = False

    @property
    def effect_size(self) -> float:
        """Cohen's d of the values against the controls, positive in the direction of the claim."""
        return effect_size(*self._larger_smaller)

    @property
    def p_value(self) -> float:
        """One-sided p-value of the paired test over seeds."""
        return paired_p_value(*self._larger_smaller)

    @property
    def _larger_smaller(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (self.controls, self.values) if self.lower else (self.values, self.controls)

    @property
    def outcome(self) -> Outcome:
        """Outcome of this part over all seeds; if no number varies with the seed, they are one sample."""
        if self.exact:
            return _exact_outcome(self.values, self.controls, self.lower)
        varies = len({*zip(self.values, self.controls, strict=True)}) > 1
        return decide(self.p_value, can_reach=can_reach(len(self.values) if varies else 1))

    def __str__(self) -> str:
        values, controls = mean_interval(self.values), mean_interval(self.controls)
        if self.exact:
            sides = f"{self.value_name} {max(self.values):.3g}, {self.control_name} {min(self.controls):.3g}"
            return f"{self.name}: {sides} (exact, in each seed)"
        size = f"{self.effect_size:.1f}" if math.isfinite(self.effect_size) else "infinite, as nothing varies"
        sides = f"{self.value_name} {values}, {self.control_name} {controls}"
        return f"{self.name}: {sides} (effect size {size}, p = {format_p(self.p_value)})"


def pool(runs: Sequence[Sequence[Comparison]]) -> tuple[SeedsComparison, ...]:
    """Return the comparisons of several runs, seed by seed.

    >>> pool([[Comparison("loss", "four", 1.0, "one", 2.0 + n, lower=True)] for n in range(5)])[0].outcome.value
    'supported'
    """
    return tuple(
        SeedsComparison(
            one.name, one.value_name, tuple(part.value for part in parts), one.control_name,
            tuple(part.control for part in parts), one.lower, one.exact,
        )
        for parts in zip(*runs, strict=True)
        for one in parts[:1]
    )  # fmt: skip


def _exact_outcome(values: Iterable[float], controls: Iterable[float], lower: bool) -> Outcome:
    pairs = zip(values, controls, strict=True)
    holds = all(value <= control if lower else value >= control for value, control in pairs)
    return Outcome.SUPPORTED if holds else Outcome.NOT_SUPPORTED


def claim_outcome(parts: Sequence[Comparison | SeedsComparison]) -> Outcome:
    """Return the outcome of a claim from its parts, each of which has to be supported.

    An exact part is a condition: without it nothing is supported, and it supports nothing if there is something to
    measure. Of the others, some supported and some not is support under conditions.

    >>> good, bad = (Comparison("x", "a", 1.0, "b", 0.0, p_value=p) for p in (0.01, 0.5))
    >>> claim_outcome([good]).value, claim_outcome([good, bad]).value, claim_outcome([bad]).value
    ('supported', 'supported under conditions', 'not supported')
    """
    if any(part.exact and part.outcome is Outcome.NOT_SUPPORTED for part in parts):
        return Outcome.NOT_SUPPORTED
    kinds = {part.outcome for part in parts if not part.exact} or {Outcome.SUPPORTED}
    if {Outcome.SUPPORTED, Outcome.NOT_SUPPORTED} <= kinds:
        return Outcome.CONDITIONS
    return next(kind for kind in (Outcome.NOT_SUPPORTED, Outcome.CANNOT_TELL, Outcome.SUPPORTED) if kind in kinds)
