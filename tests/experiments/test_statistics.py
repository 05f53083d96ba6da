"""Statistics: intervals cover, tests keep their level and find effects, outcomes follow."""

import numpy as np
import pytest

from peasy.experiments import statistics
from peasy.experiments.statistics import Outcome


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
    assert statistics.decide(0.01, conditions=True) is Outcome.CONDITIONS
    assert statistics.decide(0.5) is Outcome.NOT_SUPPORTED
    assert statistics.decide(0.5, can_reach=False) is Outcome.CANNOT_TELL
    assert statistics.combine([Outcome.SUPPORTED, Outcome.SUPPORTED]) is Outcome.SUPPORTED
    assert statistics.combine([Outcome.SUPPORTED, Outcome.CANNOT_TELL]) is Outcome.CONDITIONS
    assert statistics.combine([Outcome.NOT_SUPPORTED, Outcome.CANNOT_TELL]) is Outcome.CANNOT_TELL
