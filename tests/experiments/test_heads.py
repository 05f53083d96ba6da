"""Several heads must beat one by more than the variation between seeds; otherwise the verdict changes."""

from peasy.experiments import heads
from peasy.experiments.statistics import Outcome


def test_head_counts_have_equal_parameters(tmp_path):
    result = heads.run(steps=4, seeds=1, probes=4, counts=(1, 2))
    sizes = {model["parameters"] for model in result.numbers.values()}
    assert len(sizes) == 1
    assert set(result.numbers) == {"1", "2"}
    assert set(result.numbers["2"]["attention_shares"]) == {"0.0", "0.1", "1.0", "1.1"}


def trained(count, *losses):
    shares = {(0, head): {"same position": 0.5, "first token": head / 4} for head in range(count)}
    return heads.HeadCountResult(count, 1000, losses, (0.6, 0.6), ((0.0, 5.0), (9.0, losses[0])), 0.5, shares)


def concluded(*models):
    import numpy as np

    from peasy.views.document import Maps

    return heads.conclude(models, Maps("heads", np.zeros((1, 1, 1, 1)), ("a",), ("a",)), 0)


def test_verdict_follows_the_numbers():
    high, low = [2.0, 2.02, 2.01, 2.03, 2.0], [1.5, 1.52, 1.51, 1.53, 1.5]
    assert concluded(trained(1, *high), trained(4, *low)).outcome is Outcome.SUPPORTED
    assert concluded(trained(1, *low), trained(4, *high)).outcome is Outcome.NOT_SUPPORTED
    assert concluded(trained(1, *high[:2]), trained(4, *low[:2])).outcome is Outcome.CANNOT_TELL


def test_heads_are_classified_by_main_target():
    result = concluded(trained(1, 2.0, 2.0), trained(4, 1.5, 1.5))
    table = result.parts[-1]
    assert table.columns == ("head", "same position", "first token", "most")
    assert [row[-1] for row in table.rows] == ["same position", "same position", "same position", "first token"]
    assert "of 2 kinds" in result.verdict


def test_gain_within_noise_does_not_hold():
    result = concluded(trained(1, 2.0, 2.3, 2.1, 2.2, 2.0), trained(4, 1.95, 2.35, 2.0, 2.3, 2.05))
    assert result.outcome is Outcome.NOT_SUPPORTED
    assert "NOT learn measurably more" in result.verdict


def test_too_many_heads_are_reported():
    losses = [[base + seed / 100 for seed in range(5)] for base in (2.0, 1.5, 1.8)]
    result = concluded(trained(1, *losses[0]), trained(4, *losses[1]), trained(8, *losses[2]))
    assert "8 are no better than 4" in result.verdict
