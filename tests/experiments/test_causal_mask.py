"""A missing causal mask makes the loss too low and the text worse; the control changes the verdict."""

import pytest

from peasy.experiments import causal_mask


def test_causal_mask_hides_later_tokens():
    matrix = causal_mask.causal_mask_matrix()
    assert matrix.values[0] == (1.0, *[None] * (len(matrix.columns) - 1))
    assert None not in matrix.values[-1]


@pytest.mark.slow
def test_missing_mask_is_detected():
    result = causal_mask.run()
    assert result.holds, result.verdict


def test_control_changes_verdict():
    result = causal_mask.run(steps=2, leak=False, texts=2)
    assert not result.holds
