"""Gradients of worked examples: equal to torch autograd and to finite differences; displayed cells evaluate."""

import numpy as np
from tests.worked.test_arithmetic import check

from peasy.worked import load_example, solve


def test_layer_norm_on_paper():
    worked = solve(load_example("layer-norm"))
    np.testing.assert_allclose(worked.values["norm.normalised"][0], [-1, 1, -1, 1])
    np.testing.assert_allclose(worked.values["norm.output"][1], [-2, 2, -1, 2])
    check(worked)


def test_cross_entropy_gradient_is_probability_minus_target():
    worked = solve(load_example("cross-entropy"))
    difference = worked.values["loss.probabilities"] - worked.values["loss.targets"]
    np.testing.assert_allclose(worked.values["d_logits"], difference / 2, atol=1e-15)
    assert worked.values["after.loss.loss"] < worked.values["loss.loss"]
    check(worked)
