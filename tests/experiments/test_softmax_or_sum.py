"""Division by the sum fails for negative scores; the trained losses decide, in both directions."""

from peasy.experiments import softmax_or_sum
from peasy.experiments.experiment import experiment
from peasy.experiments.statistics import Outcome, claim_outcome, pool


def test_softmax_gives_valid_weights_where_the_sum_does_not():
    result = softmax_or_sum.run(steps=20)
    assert result.numbers["invalid"]["signed"] == {"softmax": 0.0, "sum": result.numbers["invalid"]["signed"]["sum"]}
    assert result.numbers["invalid"]["signed"]["sum"] > 0.5
    assert result.numbers["invalid"]["non-negative"]["sum"] == 0, "the control is fair"
    assert result.outcome is Outcome.CANNOT_TELL, "one seed"


def test_softmax_learns_more_with_five_seeds():
    result = experiment("softmax-or-sum", seeds=5, steps=40)
    assert result.outcome is Outcome.SUPPORTED, result.verdict


def concluded(softmax, total):
    chances = {name: {"softmax": 0.0, "sum": 0.5} for name in ("signed", "non-negative")}
    derivatives = {"positive": {"softmax": 1.0, "sum": 1.0}}
    losses = ({"softmax": ((0.0, a),), "sum": ((0.0, b),)} for a, b in zip(softmax, total, strict=True))
    runs = [softmax_or_sum.conclude({}, derivatives, chances, by, 0).comparisons for by in losses]
    return claim_outcome(pool(runs))


def test_losses_of_the_seeds_decide():
    low, high = [0.1, 0.2, 0.15, 0.25, 0.12], [0.9, 0.8, 0.85, 0.95, 0.7]
    assert concluded(low, high) is Outcome.SUPPORTED
    assert concluded(high, low) is Outcome.NOT_SUPPORTED
    assert concluded(low[:2], high[:2]) is Outcome.CANNOT_TELL


def test_validity_of_weights():
    assert softmax_or_sum.is_valid(softmax_or_sum.normalize((1.0, 2.0), "softmax"))
    assert not softmax_or_sum.is_valid(softmax_or_sum.normalize((-1.0, 2.0), "sum"))
