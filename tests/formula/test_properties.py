"""Properties of attention for arbitrary numbers."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounding import attention_error_bound, causal_mask

from peasy import Additive, attend
from peasy.formula import attention
from peasy.formula.scoring import Normalisation

EXACT = {"rtol": 1e-11, "atol": 1e-12}
"""Allows for another order of summation in float64, and nothing else."""

BAD = [np.nan, np.inf, -np.inf]
SCORINGS = ["dot", "cosine", "scaled-dot"]

reproducible = settings(max_examples=40, deadline=None, derandomize=True)
sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def tokens(draw, n_query=None, n_key=None):
    """Random query, key and value in a random layout, and a generator for more."""
    rng = np.random.default_rng(draw(seeds))
    leading = draw(st.sampled_from([(), (2,), (2, 3)]))
    n_query, n_key = n_query or draw(sizes), n_key or draw(sizes)
    d_key, d_value = draw(sizes), draw(sizes)
    query = rng.normal(size=(*leading, n_query, d_key)) * draw(st.sampled_from([0.1, 1, 30]))
    return rng, query, rng.normal(size=(*leading, n_key, d_key)), rng.normal(size=(*leading, n_key, d_value))


@reproducible
@given(tokens(), st.sampled_from(SCORINGS))
def test_key_order_does_not_matter(qkv, scoring):
    rng, q, k, v = qkv
    order = rng.permutation(k.shape[-2])
    steps = attend(q, k, v, scoring=scoring)
    moved = attend(q, k[..., order, :], v[..., order, :], scoring=scoring)
    np.testing.assert_allclose(moved.context, steps.context, **EXACT)
    np.testing.assert_allclose(moved.weights, steps.weights[..., order], **EXACT)


@reproducible
@given(tokens(), st.sampled_from(SCORINGS), st.sampled_from(["softmax", "none"]))
def test_masked_key_equals_removed_key(qkv, scoring, normalisation):
    rng, q, k, v = qkv
    kept = rng.random(k.shape[-2]) < 0.6
    options = {"scoring": scoring, "normalise": normalisation}
    masked = attend(q, k, v, mask=kept, **options)
    removed = attend(q, k[..., kept, :], v[..., kept, :], **options)
    np.testing.assert_allclose(masked.context, removed.context, **EXACT)
    np.testing.assert_allclose(masked.weights[..., kept], removed.weights, **EXACT)
    assert not masked.weights[..., ~kept].any()


@reproducible
@given(tokens(n_query=6, n_key=6), st.integers(1, 6))
def test_causal_prefix_does_not_depend_on_later_tokens(qkv, n):
    _, q, k, v = qkv
    whole = attend(q, k, v, causal=True).context
    prefix = attend(q[..., :n, :], k[..., :n, :], v[..., :n, :], causal=True).context
    np.testing.assert_allclose(whole[..., :n, :], prefix, **EXACT)


@reproducible
@given(tokens(n_key=6), st.integers(0, 6))
def test_cached_queries_equal_the_last_rows(qkv, n):
    """With fewer queries than keys, the rows equal the last rows of the whole."""
    _, _, k, v = qkv
    whole = attend(k, k, v, causal=True).context
    end = attend(k[..., n:, :], k, v, causal=True).context
    np.testing.assert_allclose(whole[..., n:, :], end, **EXACT)


@reproducible
@given(seeds, st.integers(1, 3), st.integers(1, 4))
def test_shared_heads_equal_repeated_heads(seed, kv_heads, group):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(2, kv_heads * group, 4, 3))
    k, v = rng.normal(size=(2, kv_heads, 5, 3)), rng.normal(size=(2, kv_heads, 5, 2))
    shared = attend(q, k, v, causal=True)
    for head in range(kv_heads * group):
        own = attend(q[:, head], k[:, head // group], v[:, head // group], causal=True)
        np.testing.assert_allclose(shared.context[:, head], own.context, **EXACT)
        np.testing.assert_allclose(shared.contributions[:, head], own.contributions, **EXACT)


@reproducible
@given(tokens(), st.integers(0, 4) | st.none(), st.integers(0, 4) | st.none())
def test_window_equals_mask(qkv, back, ahead):
    _, q, k, v = qkv
    n_query, n_key = q.shape[-2], k.shape[-2]
    mask = np.zeros((n_query, n_key), bool)
    for i in range(n_query):
        for j in range(n_key):
            position = i + n_key - n_query
            mask[i, j] = (back is None or position - j <= back) and (ahead is None or j - position <= ahead)
    np.testing.assert_array_equal(attend(q, k, v, window=(back, ahead)).context, attend(q, k, v, mask=mask).context)
    if back is not None and back == ahead:
        np.testing.assert_array_equal(attend(q, k, v, window=back + 1).context, attend(q, k, v, mask=mask).context)


@reproducible
@given(tokens())
def test_bias_of_minus_infinity_is_a_mask(qkv):
    rng, q, k, v = qkv
    mask = rng.random((q.shape[-2], k.shape[-2])) < 0.6
    by_bias, by_mask = attend(q, k, v, bias=np.where(mask, 0, -np.inf)), attend(q, k, v, mask=mask)
    np.testing.assert_array_equal(by_bias.weights, by_mask.weights)
    np.testing.assert_array_equal(by_bias.context, by_mask.context)


@reproducible
@given(tokens(), st.sampled_from(["softmax", "sum", "none"]))
def test_fully_masked_query_gets_zeros(qkv, normalisation):
    _, q, k, v = qkv
    steps = attend(np.abs(q), np.abs(k), v, mask=np.zeros(k.shape[-2], bool), normalise=normalisation)
    assert not steps.weights.any()
    assert not steps.context.any()


def test_no_keys_and_no_queries(library):
    def put(*size):
        return library.array(np.ones(size))

    no_keys = attend(put(2, 3), put(0, 3), put(0, 4), causal=True)
    assert library.numpy(no_keys.context).tolist() == [[0] * 4] * 2
    assert tuple(attend(put(0, 3), put(2, 3), put(2, 4)).context.shape) == (0, 4)
    assert tuple(attend(put(0, 3), put(0, 3), put(0, 4), causal=True).context.shape) == (0, 4)
    assert library.numpy(attend(put(2, 3), put(0, 3), put(0, 4), normalise="sum").context).tolist() == [[0] * 4] * 2


# Masked keys and values have no effect


def poisoned(rng, q, k, v, bad):
    """Return a mask, and the inputs with non-finite numbers at all masked positions."""
    mask = rng.random((q.shape[-2], k.shape[-2])) < 0.7
    mask[:, rng.integers(k.shape[-2])] = False
    mask[rng.integers(q.shape[-2])] = False
    attended_key, attending_query = mask.any(axis=0), mask.any(axis=1)
    q, k, v = q.copy(), k.copy(), v.copy()
    q[..., ~attending_query, :], k[..., ~attended_key, :], v[..., ~attended_key, :] = bad, bad, bad
    return mask, q, k, v


@reproducible
@given(tokens(), st.sampled_from(BAD), st.sampled_from([*SCORINGS, "additive"]))
def test_masked_nonfinite_numbers_change_no_bit(qkv, bad, scoring):
    rng, q, k, v = qkv
    if scoring == "additive":
        d_key = q.shape[-1]
        scoring = Additive(rng.normal(size=(d_key, 3)), rng.normal(size=(d_key, 3)), rng.normal(size=3))
    mask, *poisoned_inputs = poisoned(rng, q, k, v, bad)
    clean, dirty = attend(q, k, v, mask=mask, scoring=scoring), attend(*poisoned_inputs, mask=mask, scoring=scoring)
    np.testing.assert_array_equal(dirty.weights, clean.weights)
    np.testing.assert_array_equal(dirty.context, clean.context)
    np.testing.assert_array_equal(dirty.contributions, clean.contributions)


@reproducible
@given(tokens(n_query=5, n_key=5), st.sampled_from(BAD), st.integers(1, 4))
def test_nonfinite_token_reaches_only_queries_that_attend_to_it(qkv, bad, position):
    _, q, k, v = qkv
    clean = attend(q, k, v, causal=True).context
    for poison_key in (True, False):
        poisoned_k, poisoned_v = k.copy(), v.copy()
        (poisoned_k if poison_key else poisoned_v)[..., position, :] = bad
        dirty = attend(q, poisoned_k, poisoned_v, causal=True).context
        np.testing.assert_array_equal(dirty[..., :position, :], clean[..., :position, :])
        for row in range(5):  # masked keys might as well not exist
            kept = slice(row + 1)
            alone = attend(q[..., [row], :], poisoned_k[..., kept, :], poisoned_v[..., kept, :]).context
            np.testing.assert_allclose(dirty[..., [row], :], alone, rtol=1e-9)


@reproducible
@given(tokens(n_query=5, n_key=5), st.sampled_from(BAD), st.integers(0, 4), st.sampled_from(["softmax", "none"]))
def test_a_mask_that_hides_nothing_changes_nothing(qkv, bad, position, normalise):
    """Also where a visible number is infinite: it is not turned into NaN."""
    _, q, k, v = qkv
    for poisoned_index in range(3):
        arrays = [q.copy(), k.copy(), v.copy()]
        arrays[poisoned_index][..., position, :] = bad
        plain, masked = (attend(*arrays, mask=mask, normalise=normalise) for mask in (None, np.ones((5, 5), bool)))
        for step in ("scores", "weights", "context"):
            np.testing.assert_allclose(getattr(masked, step), getattr(plain, step), rtol=1e-9)


def test_an_infinite_visible_value_stays_infinite():
    x = np.ones((2, 1))
    value = np.array([[np.inf], [1.0]])
    assert attend(x, x, value, mask=np.ones((2, 2), bool)).context.tolist() == [[np.inf], [np.inf]]
    assert attend(x, x, -value, causal=True).context.tolist() == [[-np.inf], [-np.inf]]
    assert attend(x, x, value[::-1], causal=True).context.tolist() == [[1.0], [np.inf]]


def masked_gradients(bad, seed, scoring="scaled-dot", softcap=None):
    rng = np.random.default_rng(seed)
    shape = (2, 4, 3)
    mask, *poisoned_inputs = poisoned(rng, *(rng.normal(size=shape) for _ in range(3)), bad)
    inputs = [torch.tensor(array, requires_grad=True) for array in poisoned_inputs]
    steps = attend(*inputs, mask=torch.tensor(mask), scoring=scoring, softcap=softcap)
    (steps.context.sum() + steps.contributions.sum()).backward()
    return [array.grad for array in inputs]


@reproducible
@given(seeds, st.sampled_from(BAD), st.sampled_from(SCORINGS), st.sampled_from([None, 2.0]))
def test_masked_gradients_are_finite(seed, bad, scoring, softcap):
    assert all(torch.isfinite(array).all() for array in masked_gradients(bad, seed, scoring, softcap))


@pytest.mark.parametrize("bad", BAD)
def test_without_nan_safe_products_sums_and_gradients_are_nan(monkeypatch, bad):
    """Inverse: the two properties above need `_zero_nonfinite`."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(4, 3)) for _ in range(3))
    mask, *poisoned_inputs = poisoned(rng, q, k, v, bad)
    monkeypatch.setattr(attention, "_zero_nonfinite", lambda xp, array: (array, None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert not np.array_equal(attend(*poisoned_inputs, mask=mask).context, attend(q, k, v, mask=mask).context)
    assert not all(torch.isfinite(array).all() for array in masked_gradients(bad, 0))


def test_plain_softmax_gives_nan_for_fully_masked_rows(monkeypatch):
    def plain_softmax(xp, masked):
        powers = xp.exp(masked - xp.max(masked, axis=-1, keepdims=True))
        return powers / xp.sum(powers, axis=-1, keepdims=True)

    x = np.ones((2, 2))
    assert not attend(x, x, x, mask=[False, False]).context.any()
    bare = Normalisation("softmax", "%s", "", plain_softmax)
    with np.errstate(invalid="ignore"):
        assert np.isnan(attend(x, x, x, mask=[False, False], normalise=bare).context).all()


# Gradients and rounding


@pytest.mark.parametrize("normalisation", ["softmax", "sum", "none"])
@pytest.mark.parametrize("scoring", [*SCORINGS, "additive"])
def test_gradients_match_numerical_gradients(scoring, normalisation):
    torch.manual_seed(3)
    q, k, v = (torch.rand(4, 3, dtype=torch.float64).add(0.1).requires_grad_() for _ in range(3))
    w, u = (torch.rand(3, 2, dtype=torch.float64).requires_grad_() for _ in range(2))
    hidden = torch.rand(2, dtype=torch.float64).requires_grad_()

    def context(q, k, v, w, u, hidden):
        scored = Additive(w, u, hidden) if scoring == "additive" else scoring
        return attend(q, k, v, causal=True, softcap=5.0, scoring=scored, normalise=normalisation).context

    assert torch.autograd.gradcheck(context, (q, k, v, w, u, hidden))


def test_gradients_with_shared_heads_bias_and_contributions():
    torch.manual_seed(4)
    q = torch.randn(1, 4, 3, 2, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    bias = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)

    def contributions(q, k, v, bias):
        return attend(q, k, v, bias=bias, window=2).contributions

    assert torch.autograd.gradcheck(contributions, (q, k, v, bias))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_error_is_within_the_rounding_bound(library, dtype, size, causal):
    """Whatever the CPU and the order of summation; inputs in half precision are computed in float32."""
    for seed in range(10):
        torch.manual_seed(seed)
        q, k, v = (torch.randn(1, 8, 64, 64).mul(factor).to(dtype) for factor in (size, 1, 1))
        exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
        inputs = (q, k, v) if library == "torch" else (q.float().numpy(), k.float().numpy(), v.float().numpy())
        context = torch.as_tensor(attend(*inputs, causal=causal).context)
        assert context.dtype == torch.float32
        bound = attention_error_bound(q, k, v, causal_mask(64, 64, causal), 64**-0.5)
        assert ((context - exact).abs() <= bound).all()


@pytest.mark.parametrize("error", ["half precision", "scale"])
def test_larger_errors_exceed_the_rounding_bound(error):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 8, 64, 64) for _ in range(3))
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    context = attend(q * 1.01, k, v).context if error == "scale" else attend(q, k, v.bfloat16().float()).context
    assert not ((context - exact).abs() <= attention_error_bound(q, k, v, causal_mask(64, 64, False), 1 / 8)).all()


@reproducible
@given(tokens())
def test_libraries_agree(qkv):
    _, q, k, v = qkv
    on_numpy = attend(q, k, v, causal=True, softcap=3.0)
    on_torch = attend(*map(torch.tensor, (q, k, v)), causal=True, softcap=3.0)
    for name in on_numpy:
        np.testing.assert_allclose(on_torch[name].numpy(), on_numpy[name], **EXACT)
