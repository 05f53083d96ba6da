"""Without the scale the variance grows with d_k; a constant scale changes the verdict."""

from peasy.experiments import why_root_dk
from peasy.experiments.statistics import Outcome, claim_outcome, pool


def test_scale_keeps_variance_and_gradient():
    result = why_root_dk.run(steps=0)
    assert abs(result.numbers["growth"]["without"] - 1) < 0.1
    assert result.outcome is Outcome.CANNOT_TELL, "an identity alone says nothing about training"


def test_constant_scale_changes_verdict():
    assert why_root_dk.run(steps=0, scale=0.5).outcome is Outcome.NOT_SUPPORTED


def test_losses_of_the_seeds_decide():
    stats = {w: why_root_dk.ScoreStatistics(float(w), 0.5, 1.0 / w) for w in why_root_dk._WIDTHS}
    scaled = {w: why_root_dk.ScoreStatistics(1.0, 0.5, 1.0) for w in why_root_dk._WIDTHS}
    low, high = ([((0.0, loss + seed / 100),) for seed in range(5)] for loss in (1.0, 2.0))

    def outcome(*losses):
        by_seed = [dict(zip(("with 1/√d_k", "without"), pair, strict=True)) for pair in zip(*losses, strict=True)]
        return claim_outcome(pool([why_root_dk.conclude(stats, scaled, by, 0).comparisons for by in by_seed]))

    assert outcome(low, high) is Outcome.SUPPORTED
    assert outcome(high, low) is Outcome.NOT_SUPPORTED
    assert outcome(low[:1], high[:1]) is Outcome.CANNOT_TELL


def test_training_curves():
    result = why_root_dk.run(steps=4)
    assert set(result.numbers["training"]) == {"with 1/√d_k", "without"}
    assert result.outcome is Outcome.CANNOT_TELL, "one seed"
