"""Attention masks: by definition, with windows, padding and a KV cache; rows and heads of a mask; previous tokens."""

import pytest
import torch

from peasy.nn.mask import AttentionMask, MaskSpec


def spec(queries: int, keys: int, causal: bool = True, padding=None) -> MaskSpec:
    positions = torch.arange(keys)[None]
    mask = None if padding is None else torch.tensor(padding)
    return MaskSpec(positions[:, keys - queries :], positions, causal, mask)


def full_mask(mask: AttentionMask, queries: int, keys: int) -> torch.Tensor:
    """Return what the fused kernel gets, as booleans `[query, key]`."""
    additive, causal = mask.sdpa_args(torch.zeros(1, 1, queries, 2))
    if causal:
        return torch.ones(queries, keys, dtype=torch.bool).tril()
    return (
        torch.ones(queries, keys, dtype=torch.bool)
        if additive is None
        else (additive == 0).expand(1, 1, queries, keys)[0, 0]
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 2, 9])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 5), (3, 5), (1, 5)])
def test_mask_by_definition(queries, keys, window, causal):
    """Causal masks are aligned bottom-right: the last query is at the position of the last key."""
    actual = full_mask(spec(queries, keys, causal).attention_mask(window, keys), queries, keys)
    for query in range(queries):
        for key in range(keys):
            distance = query + keys - queries - key
            expected = (distance >= 0 or not causal) and (window is None or abs(distance) < window)
            assert bool(actual[query, key]) is expected


def test_padding_is_masked_for_every_query():
    mask = spec(4, 4, causal=False, padding=[[False, True, True, True]]).attention_mask(None, 4)
    assert mask.mask.shape == (1, 1, 1, 4)
    assert full_mask(mask, 4, 4).tolist() == [[False, True, True, True]] * 4


@pytest.mark.parametrize(
    ("mask_spec", "window", "expected"),
    [
        (spec(3, 5), None, (True, None)),
        (spec(3, 5), 2, (True, 2)),
        (spec(3, 5, causal=False), None, (False, None)),
        (spec(3, 5, causal=False), 2, None),
        (spec(2, 2, padding=[[False, True]]), None, None),
    ],
)
def test_key_range_only_without_padding(mask_spec, window, expected):
    assert mask_spec.attention_mask(window, mask_spec.key_positions.shape[1]).key_range == expected


def test_layers_share_one_mask():
    shared = spec(3, 5)
    assert shared.attention_mask(2, 5) is shared.attention_mask(2, 5)
    assert shared.attention_mask(2, 5) is not shared.attention_mask(None, 5)
    query = torch.zeros(1, 1, 3, 2)
    assert shared.attention_mask(2, 5).sdpa_args(query)[0] is shared.attention_mask(2, 5).sdpa_args(query)[0]


@pytest.mark.parametrize("mask_spec", [spec(5, 5), spec(3, 5), spec(5, 5, padding=[[False, True, True, True, True]])])
def test_rows_of_a_mask(mask_spec):
    keys, queries = mask_spec.key_positions.shape[1], mask_spec.query_positions.shape[1]
    mask = mask_spec.attention_mask(None, keys)
    query, whole = torch.zeros(1, 2, queries, 2), full_mask(mask, queries, keys)
    selected = mask.select(query, (2, 0), heads=(0, 1))
    assert torch.equal(full_mask(selected, 2, keys), whole[[2, 0]])
    sliced = mask.select(query, slice(1, 3), n_key=keys)
    assert torch.equal(full_mask(sliced, 2, keys), whole[1:3])
    first = mask.select(query, slice(0, 2), n_key=2)
    assert torch.equal(full_mask(first, 2, 2), whole[:2, :2])


def test_heads_of_a_bias_and_of_a_mask():
    bias, mask = torch.arange(12.0).view(1, 3, 2, 2), torch.rand(1, 3, 2, 2) > 0.5
    selected = AttentionMask(mask, bias).select(torch.zeros(1, 3, 2, 4), (0, 1), heads=(2, 0))
    assert torch.equal(selected.bias, bias[:, [2, 0]])
    assert torch.equal(selected.mask, mask[:, [2, 0]])


def test_previous_token_skips_padding():
    assert spec(3, 3).previous_token_index() is None
    index = spec(4, 4, padding=[[True, False, True, True]]).previous_token_index()
    assert index[0, [0, 2, 3]].tolist() == [-1, 0, 2]
