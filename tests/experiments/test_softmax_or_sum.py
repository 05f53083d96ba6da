"""Division by the sum fails for negative scores; the trained losses decide, in both directions."""

from peasy.experiments import softmax_or_sum
from peasy.experiments.statistics import Outcome


def test_softmax_gives_valid_weights_where_the_sum_does_not():
    result = softmax_or_sum.run(steps=60)
    assert result.holds, result.verdict
    assert result.numbers["invalid"]["signed"] == {"softmax": 0.0, "sum": result.numbers["invalid"]["signed"]["sum"]}
    assert result.numbers["invalid"]["signed"]["sum"] > 0.5
    assert result.numbers["invalid"]["non-negative"]["sum"] == 0, "the control is fair"


def concluded(softmax, total):
    runs = [{"softmax": ((0.0, a),), "sum": ((0.0, b),)} for a, b in zip(softmax, total, strict=True)]
    chances = {name: {"softmax": 0.0, "sum": 0.5} for name in ("signed", "non-negative")}
    return softmax_or_sum._conclude({}, {"x": {"softmax": 1.0, "sum": 1.0}}, chances, runs, 0)


def test_losses_of_the_seeds_decide():
    low, high = [0.1, 0.2, 0.1, 0.2, 0.1], [0.9, 0.8, 0.9, 0.8, 0.9]
    assert concluded(low, high).outcome is Outcome.SUPPORTED
    assert concluded(high, low).outcome is Outcome.NOT_SUPPORTED
    assert concluded(low[:2], high[:2]).outcome is Outcome.CANNOT_TELL
    assert softmax_or_sum.run(steps=0).outcome is Outcome.CANNOT_TELL


def test_validity_of_weights():
    assert softmax_or_sum.is_valid(softmax_or_sum.normalize((1.0, 2.0), "softmax"))
    assert not softmax_or_sum.is_valid(softmax_or_sum.normalize((-1.0, 2.0), "sum"))
