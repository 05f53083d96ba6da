"""Attention finds a value that equal weights cannot; the verdict follows in both directions."""

from peasy.experiments import equal_weights, one_big_head
from peasy.experiments.statistics import Outcome


def concluded(attention, equal):
    hits = {
        name: [n < count for n in range(20)] for name, count in (("attention", attention), ("equal weights", equal))
    }
    curve = {name: ((0.0, loss),) for name, loss in (("attention", 1.0), ("equal weights", 2.0))}
    return equal_weights.conclude(hits, curve, curve, 0).comparisons[0].outcome


def test_lookups_decide():
    assert concluded(20, 5) is Outcome.SUPPORTED
    assert concluded(5, 20) is Outcome.NOT_SUPPORTED
    assert concluded(10, 10) is Outcome.NOT_SUPPORTED


def test_untrained_layer_is_no_better_than_equal_weights():
    hits = {name: one_big_head.train_lookup(1, 1, 0, 0, 200, scale)[1] for name, scale in equal_weights._SCALES.items()}
    curve = dict.fromkeys(hits, ((0.0, 1.0),))
    assert equal_weights.conclude(hits, curve, curve, 0).comparisons[0].outcome is Outcome.NOT_SUPPORTED


def test_a_short_run(monkeypatch):
    monkeypatch.setattr(equal_weights, "_LOOKUP_STEPS", 60)
    result = equal_weights.run(steps=2, texts=64)
    assert set(result.numbers["accuracy"]) == {"attention", "equal weights"}
    assert result.numbers["accuracy"]["attention"] > result.numbers["accuracy"]["equal weights"]
