"""`peasy.testing.assert_attention`."""

import pytest
import torch

from peasy.testing import assert_attention


def no_scale(q, k, v):
    return torch.softmax(q @ k.mT, dim=-1) @ v


def test_correct_attention_passes():
    assert assert_attention(torch.nn.functional.scaled_dot_product_attention).passed


def test_wrong_attention_fails_with_line_and_fix():
    with pytest.raises(AssertionError, match=r"no scale \(line \d+: return torch.softmax.*Fix: scores = "):
        assert_attention(no_scale)
    assert assert_attention(no_scale, allow=("no scale",)).mistakes == ("no scale",)


def test_code_that_is_not_compared_fails_unless_allowed():
    def linear(q, k, v):
        return q @ (k.mT @ v)

    with pytest.raises(AssertionError, match="was not compared"):
        assert_attention(linear)
    assert assert_attention(linear, not_compared=True).passed is None
