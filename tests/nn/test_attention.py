"""Fused attention: masked rows and masked NaN; that it equals the formula is tested in tests/equivalence."""

import pytest
import torch

from peasy.nn.attention import attend_fused
from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask


def fused(*inputs):
    return attend_fused(AttentionInputs(*inputs))


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_fully_masked_rows_give_zeros_and_finite_gradients(softcap):
    query, key, value = (torch.randn(2, 4, 6, 8, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 6, 6) > 0.4
    mask[:, :, 2] = False
    context = fused(query, key, value, AttentionMask(mask), 0.3, softcap)
    assert not context[:, :, 2].any()
    context.square().sum().backward()
    assert all(array.grad.isfinite().all() for array in (query, key, value))
    assert not query.grad[:, :, 2].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_masked_nonfinite_numbers_leave_gradients_finite(bad):
    """A masked key equals a removed key, in values and in gradients of unmasked positions."""
    query, key, value = (torch.randn(1, 2, 5, 4) for _ in range(3))
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    mask[..., 3] = False
    key[:, :, 3], value[:, :, 3] = bad, bad
    keep = [0, 1, 2, 4]
    for array in (query, key, value):
        array.requires_grad_()
    fused(query, key, value, AttentionMask(mask), 0.5).sum().backward()
    actual = query.grad.clone()
    query.grad = None
    fused(query, key[:, :, keep], value[:, :, keep], AttentionMask(), 0.5).sum().backward()
    torch.testing.assert_close(actual, query.grad)
