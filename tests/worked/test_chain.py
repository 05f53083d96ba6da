"""The chain rule followed to one number: order, value, check by a small change, and what cannot be followed."""

import pytest

from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.worked import load_example, solve
from peasy.worked.arithmetic import NUDGE, follow


@pytest.mark.parametrize(
    ("name", "target"), [("layer-norm", "norm.gain[0,2]"), ("cross-entropy", "d loss/d logits[1,2]")]
)
def test_the_gradient_is_that_of_a_small_change(name, target):
    chain = follow(solve(load_example(name)), target)
    less, more = chain.nudged_losses
    assert (more - less) / (2 * NUDGE) == pytest.approx(chain.value, abs=1e-6)
    assert chain.value != 0


def test_every_gradient_follows_from_those_before():
    worked = solve(load_example("layer-norm"))
    steps = [step.name for step in follow(worked, "d loss / d X[0,1]").steps]
    assert steps == ["d_loss", "norm.d_output", "norm.d_scaled", "norm.d_normalised", "d_x"]
    for position, name in enumerate(steps[1:], start=1):
        inputs = worked.graph.nodes[name].routes[0].inputs
        assert set(inputs) & set(steps[:position]), name


@pytest.mark.parametrize(
    ("example", "target", "error", "message"),
    [
        ("layer-norm", "gain", UsageError, "is not a gradient"),
        ("layer-norm", "d loss / d gian[0,0]", NotFound, 'no gradient of "gian"'),
        ("layer-norm", "x[5,0]", NotFound, "has no entry"),
        ("i-love-ai", "w_q[0,0]", InvalidInput, "has no gradients"),
    ],
)
def test_what_cannot_be_followed(example, target, error, message):
    with pytest.raises(error, match=message) as raised:
        follow(solve(load_example(example)), target)
    assert raised.value.hint
