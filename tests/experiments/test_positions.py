"""Without positions the order is lost; the verdict follows from the accuracy within and beyond the trained length."""

import numpy as np

from peasy.experiments import positions
from peasy.experiments.statistics import Outcome


def concluded(error=0.0, **beyond):
    within = {name: 0.2 if name == "none" else 1.0 for name in positions._KINDS}
    after = dict.fromkeys(positions._KINDS, 0.9) | {"none": 0.1, "learned": 0.1} | beyond
    accuracy = {name: np.array([[within[name]] * 8, [after[name]] * 8]) for name in positions._KINDS}
    return positions.conclude(error, {}, accuracy, 0).outcome


def test_each_part_can_fail():
    assert concluded() is Outcome.SUPPORTED
    assert concluded(rotary=0.2) is Outcome.CONDITIONS
    assert concluded(learned=0.9) is Outcome.CONDITIONS
    assert concluded(error=0.1) is Outcome.NOT_SUPPORTED, "order is not lost"


def test_attention_without_positions_ignores_order():
    assert positions.permutation_error(0) < 1e-12


def test_untrained_layers_do_not_know_the_order():
    result = positions.run(steps=1, texts=8)
    assert result.comparisons[1].outcome is Outcome.NOT_SUPPORTED
