"""Statistics: intervals cover, tests keep their level and find effects, outcomes follow."""

import numpy as np
import pytest

from peasy.experiments import statistics
from peasy.experiments.statistics import Comparison, Outcome


def test_interval_covers_the_true_mean_in_95_percent_of_samples():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(2000):
        interval = statistics.mean_interval(rng.normal(3.0, 2.0, size=5))
        covered.append(interval.low <= 3.0 <= interval.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("count", [5, 20])
def test_paired_test_keeps_its_level_and_finds_effects(count):
    rng = np.random.default_rng(1)
    null = [statistics.paired_p_value(*rng.normal(size=(2, count))) < statistics.ALPHA for _ in range(600)]
    assert np.mean(null) < 0.08
    found = [
        statistics.paired_p_value(rng.normal(3.0, 1.0, count), rng.normal(size=count)) < statistics.ALPHA
        for _ in range(100)
    ]
    assert np.mean(found) > 0.9


def test_effect_size_and_binomial_by_hand():
    assert statistics.effect_size([2.0, 4.0], [0.0, 2.0]) == pytest.approx(2 / np.sqrt(2))
    assert statistics.effect_size([1.0, 1.0], [1.0, 1.0]) == 0
    assert statistics.binomial_p_value(3, 3, 0.5) == pytest.approx(0.125)
    assert statistics.binomial_p_value(0, 3, 0.5) == pytest.approx(1.0)


def test_outcomes():
    assert statistics.decide(0.01) is Outcome.SUPPORTED
    assert statistics.decide(0.5) is Outcome.NOT_SUPPORTED
    assert statistics.decide(0.01, can_reach=False) is Outcome.CANNOT_TELL


def part(p_value=0.01, exact=False, value=1.0):
    return Comparison("x", "a", value, "b", 0.5, exact=exact, p_value=p_value)


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ([part(), part()], Outcome.SUPPORTED),
        ([part(), part(0.5)], Outcome.CONDITIONS),
        ([part(), part(None)], Outcome.CANNOT_TELL),
        ([part(0.5), part(None)], Outcome.NOT_SUPPORTED),
        ([part(exact=True), part(0.5)], Outcome.NOT_SUPPORTED),
        ([part(exact=True), part()], Outcome.SUPPORTED),
        ([part(exact=True, value=0.0), part()], Outcome.NOT_SUPPORTED),
        ([part(exact=True)], Outcome.SUPPORTED),
    ],
)
def test_outcome_of_a_claim_with_parts(parts, outcome):
    assert statistics.claim_outcome(parts) is outcome


def test_seeds_decide_in_the_direction_of_the_claim():
    def outcome(values, controls, lower):
        runs = [[Comparison("x", "a", v, "b", c, lower)] for v, c in zip(values, controls, strict=True)]
        return statistics.claim_outcome(statistics.pool(runs))

    high, low = [2.0, 2.1, 2.2, 2.3, 2.4], [1.0, 1.1, 1.2, 1.3, 1.4]
    assert outcome([2.0] * 5, [1.0] * 5, lower=False) is Outcome.CANNOT_TELL, "five copies are one sample"
    assert outcome(high, low, lower=False) is Outcome.SUPPORTED
    assert outcome(high, low, lower=True) is Outcome.NOT_SUPPORTED
    assert outcome(low, high, lower=True) is Outcome.SUPPORTED
    assert outcome(high[:4], low[:4], lower=False) is Outcome.CANNOT_TELL
