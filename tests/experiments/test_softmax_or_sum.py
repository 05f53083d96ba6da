"""Division by the sum fails for negative scores; swapping the two changes the verdict."""

from peasy.experiments import softmax_or_sum


def test_softmax_gives_valid_weights_where_the_sum_does_not():
    result = softmax_or_sum.run(steps=60)
    assert result.holds, result.verdict
    assert "one negative" in result.verdict


def test_swapped_normalizations_change_verdict():
    other = {"softmax": "sum", "sum": "softmax"}
    result = softmax_or_sum.run(steps=0, normalize=lambda scores, way: softmax_or_sum.normalize(scores, other[way]))
    assert not result.holds
    assert "gives invalid weights in 0 of 6" in result.verdict


def test_validity_of_weights():
    assert softmax_or_sum.is_valid(softmax_or_sum.normalize((1.0, 2.0), "softmax"))
    assert not softmax_or_sum.is_valid(softmax_or_sum.normalize((-1.0, 2.0), "sum"))
