"""Effect of 1/√d_k against plain NumPy."""

import numpy as np
import pytest

from peasy.errors import UsageError
from peasy.experiments.why_root_dk import NUM_SHOWN_KEYS as NUM_KEYS
from peasy.experiments.why_root_dk import scale


def test_weights_equal_plain_numpy():
    result, random = scale(16, seed=3), np.random.default_rng(3)
    scores = random.standard_normal((1, 16)) @ random.standard_normal((NUM_KEYS, 16)).T
    for name, by in (("without", 1.0), ("with", 0.25)):
        raised = np.exp(scores[0] * by)
        np.testing.assert_allclose(result.weights[name], raised / raised.sum(), rtol=1e-12)


def test_without_scale_variance_grows_and_gradient_vanishes():
    narrow, wide = scale(4).data(), scale(1024).data()
    assert wide["without"]["variance"] / narrow["without"]["variance"] == pytest.approx(256, rel=0.25)
    assert wide["with"]["variance"] == pytest.approx(1, abs=0.2)
    assert wide["without"]["gradient"] < 0.05 * wide["with"]["gradient"]


def test_scale_has_no_effect_at_width_one():
    result = scale(1)
    assert result.weights["with"] == result.weights["without"]


@pytest.mark.parametrize("width", [0, -1, 5000])
def test_invalid_width_is_rejected(width):
    with pytest.raises(UsageError, match="d_k must be"):
        scale(width)


def test_text():
    assert "gradient" in scale(8).text()
