"""Division by the sum breaks on negatives; were softmax to do so, the verdict would say it."""

from peasy.workbench.experiments import softmax_or_sum


def test_softmax_gives_shares_where_the_sum_does_not():
    found = softmax_or_sum.run(steps=60)
    assert found.holds, found.verdict
    assert "one negative" in found.verdict


def test_exchanged_ways_turn_the_verdict():
    other = {"softmax": "sum", "sum": "softmax"}
    found = softmax_or_sum.run(steps=0, weigh=lambda scores, way: softmax_or_sum.weigh(scores, other[way]))
    assert not found.holds
    assert "gives no shares in 0 of 6" in found.verdict


def test_shares():
    assert softmax_or_sum.proper(softmax_or_sum.weigh((1.0, 2.0), "softmax"))
    assert not softmax_or_sum.proper(softmax_or_sum.weigh((-1.0, 2.0), "sum"))
