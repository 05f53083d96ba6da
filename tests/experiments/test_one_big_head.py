"""Two heads look in two places at once; the verdict follows in both directions."""

from peasy.experiments import one_big_head
from peasy.experiments.statistics import Outcome


def concluded(one, several):
    two = {heads: [n < (one if heads == 1 else several) for n in range(20)] for heads in (1, 2, 4)}
    return one_big_head.conclude({"one place": two, "two places": two}, {}, 0).outcome


def test_both_right_decides():
    assert concluded(3, 20) is Outcome.SUPPORTED
    assert concluded(20, 3) is Outcome.NOT_SUPPORTED
    assert concluded(10, 10) is Outcome.NOT_SUPPORTED


def test_untrained_layers_do_not_differ():
    assert one_big_head.run(steps=1, texts=64).outcome is Outcome.NOT_SUPPORTED


def test_head_counts_have_equal_parameters_and_learn_one_place():
    _, hits = one_big_head.train_lookup(1, 1, 0, 300, 64)
    assert sum(hits) > 48, "chance is 8"
