"""Fused kernel equals the formula: values and gradients, for every mask, bias, GQA group and scale."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny_models import TRANSFORMERS, make, some_ids, source_of
from tests.rounding import attention_error_bound, causal_mask

from peasy.nn.attention import Attention
from peasy.nn.attention_backends import FUSED, FormulaBackend
from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask, MaskSpec

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2}


def by_kernel(*inputs):
    return FUSED.run(AttentionInputs(*inputs))


def arrays(seed, heads, kv_heads, n_query, n_key, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, n_query), (kv_heads, n_key), (kv_heads, n_key))
    return [torch.randn(2, *size, 8, generator=generator, dtype=dtype, requires_grad=True) for size in sizes]


def attention_mask(kind, n_query, n_key, heads, dtype):
    generator = torch.Generator().manual_seed(n_key)
    if kind == "mask":
        return AttentionMask(torch.rand(2, 1, n_query, n_key, generator=generator) > 0.3)
    if kind == "bias":
        return AttentionMask(bias=torch.randn(1, heads, n_query, n_key, generator=generator, dtype=dtype))
    if kind == "both":
        return AttentionMask(
            torch.rand(2, 1, n_query, n_key, generator=generator) > 0.3,
            torch.randn(1, heads, n_query, n_key, generator=generator, dtype=dtype),
        )
    if kind == "causal":
        positions = torch.arange(n_key)[None]
        return MaskSpec(positions[:, n_key - n_query :], positions, causal=True).attention_mask(None, n_key)
    return AttentionMask()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["all", "mask", "bias", "both", "causal"]),
    heads=st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1)]),
    n_query=st.integers(1, 9),
    more=st.integers(0, 7),
    scale=st.sampled_from([8**-0.5, 1.0, 0.1]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_values_and_gradients(kind, heads, n_query, more, scale, dtype):
    mask = attention_mask(kind, n_query, n_query + more, heads[0], dtype)
    fused, formula = (arrays(n_query, *heads, n_query, n_query + more, dtype) for _ in range(2))
    one = by_kernel(*fused, mask, scale)
    other = AttentionInputs(*formula, mask, scale).compute_steps().context
    torch.testing.assert_close(one, other, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    upstream = torch.randn(one.shape, dtype=dtype, generator=torch.Generator().manual_seed(1))
    one.backward(upstream)
    other.backward(upstream)
    for a, b in zip(fused, formula, strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=20 * TOLERANCE[dtype], rtol=20 * TOLERANCE[dtype])


def test_half_precision():
    mask = attention_mask("mask", 7, 9, 4, torch.float32)
    query, key, value = (array.detach().bfloat16() for array in arrays(0, 4, 2, 7, 9))
    fused = by_kernel(query, key, value, mask, 8**-0.5)
    assert fused.dtype == torch.bfloat16
    exact = AttentionInputs(query.double(), key.double(), value.double(), mask, 8**-0.5).compute_steps().context
    torch.testing.assert_close(fused.double(), exact, atol=TOLERANCE[torch.bfloat16], rtol=0)


def relative_errors(compute):
    """Return the largest error of `compute(query, key, value)` for each input, in units of the a-priori bound."""
    positions, boolean_mask = torch.arange(128)[None], causal_mask(128, 128)
    mask = MaskSpec(positions, positions, causal=True).attention_mask(None, 128)
    for seed in range(20):
        query, key, value = (array.detach() for array in arrays(seed, 4, 4, 128, 128, torch.float32))
        exact = AttentionInputs(query.double(), key.double(), value.double(), mask, 8**-0.5).compute_steps().context
        bound = attention_error_bound(query, key, value, boolean_mask, 8**-0.5)
        yield ((compute(query, key, value, mask) - exact).abs() / bound).max().item()


def test_fused_error_is_within_the_rounding_bound():
    """The bound follows from dtype, width and length alone, so it holds for any kernel on any CPU."""
    assert max(relative_errors(lambda query, key, value, mask: by_kernel(query, key, value, mask, 8**-0.5))) <= 1


@pytest.mark.parametrize(
    "inexact",
    [
        lambda q, k, v, mask: by_kernel(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask, 8**-0.5).float(),
        lambda q, k, v, mask: by_kernel(q, k, v, mask, 8**-0.5 * 1.01),
    ],
    ids=["rounded to bfloat16", "scale off by 1 %"],
)
def test_larger_errors_exceed_the_rounding_bound(inexact):
    assert min(relative_errors(inexact)) > 1


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_whole_models_by_the_formula(name):
    """A model that uses the formula in every attention gives the same logits and gradients."""
    config = TRANSFORMERS[name]
    model, ids = make(config, double=True), some_ids()
    source = source_of(model)
    fused = model(ids, **source)
    fused.square().mean().backward()
    gradients = {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    for module in model.modules():
        if isinstance(module, Attention):
            module.backend = FormulaBackend()
    by_formula = model(ids, **source)
    by_formula.square().mean().backward()
    torch.testing.assert_close(by_formula, fused, atol=1e-9, rtol=0)
    for key, weight in model.named_parameters():
        if key in gradients:
            torch.testing.assert_close(weight.grad, gradients[key], atol=1e-9, rtol=1e-7)


def test_gradients_match_numerical_gradients():
    query, key, value = arrays(2, 4, 2, 3, 5)
    mask = attention_mask("both", 3, 5, 4, torch.float64)
    assert torch.autograd.gradcheck(lambda q, k, v: by_kernel(q, k, v, mask, 0.4), (query, key, value))
