"""Four heads against one: only several seeds decide, in both directions."""

import numpy as np

from peasy.experiments import heads
from peasy.experiments.statistics import Outcome, claim_outcome, pool
from peasy.views.document import Maps


def test_head_counts_have_equal_parameters(tmp_path):
    result = heads.run(steps=4, probes=4, counts=(1, 2))
    sizes = {model["parameters"] for model in result.numbers.values()}
    assert len(sizes) == 1
    assert set(result.numbers) == {"1", "2"}
    assert set(result.numbers["2"]["attention_shares"]) == {"0.0", "0.1", "1.0", "1.1"}
    assert result.outcome is Outcome.CANNOT_TELL, "one seed"


def trained(count, loss):
    shares = {(0, head): {"same position": 0.5, "first token": head / 4} for head in range(count)}
    return heads.HeadCountResult(count, 1000, loss, (True, False), ((0.0, 5.0), (9.0, loss)), 0.5, shares)


def concluded(*models):
    return heads.conclude(models, Maps("heads", np.zeros((1, 1, 1, 1)), ("a",), ("a",)), 0)


def outcome(one, four):
    runs = [concluded(trained(1, a), trained(4, b)).comparisons for a, b in zip(one, four, strict=True)]
    return claim_outcome(pool(runs))


def test_losses_of_the_seeds_decide():
    high, low = [2.0, 2.02, 2.01, 2.03, 2.04], [1.5, 1.52, 1.51, 1.53, 1.54]
    assert outcome(high, low) is Outcome.SUPPORTED
    assert outcome(low, high) is Outcome.NOT_SUPPORTED
    assert outcome(high, [1.95, 2.35, 2.0, 2.3, 2.05]) is Outcome.NOT_SUPPORTED, "within the noise of the seeds"
    assert outcome(high[:2], low[:2]) is Outcome.CANNOT_TELL


def test_heads_are_classified_by_main_target():
    result = concluded(trained(1, 2.0), trained(4, 1.5))
    table = result.parts[-1]
    assert table.columns == ("head", "same position", "first token", "most")
    assert [row[-1] for row in table.rows] == ["same position", "same position", "same position", "first token"]
    assert "of 2 kinds" in result.verdict
