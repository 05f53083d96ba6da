"""Weight map rules: exact in both directions; missing rules are errors."""

import pytest
import torch

from peasy.checkpoint.huggingface.weight_map import (
    RowVector,
    SplitFused,
    Transpose,
    WeightMap,
    WeightRule,
    export_weights,
    import_weights,
    match_pattern,
    pair_weights,
)
from peasy.errors import InvalidInput

FUSED = WeightRule(
    "h.{layer}.qkv", ("b.{layer}.q", "b.{layer}.k", "b.{layer}.v"), SplitFused((4, 2, 2), 1, Transpose())
)
TABLE = WeightMap((FUSED, WeightRule("bias", "b.bias", RowVector()), WeightRule("w", "b.w")))
OURS = ["b.w", "b.1.k", "b.1.q", "b.1.v", "b.bias"]


def test_import_export_round_trip_is_exact():
    theirs = {"h.1.qkv": torch.randn(3, 8), "bias": torch.randn(1, 5), "w": torch.randn(2)}
    pairs = pair_weights(TABLE, OURS)
    ours = import_weights(pairs, theirs)
    assert set(ours) == set(OURS)
    assert ours["b.1.q"].shape == (4, 3)
    assert torch.equal(ours["b.1.k"], theirs["h.1.qkv"][:, 4:6].T)
    assert ours["b.bias"].shape == (5,)
    exported = export_weights(pairs, ours)
    assert exported.keys() == theirs.keys()
    assert all(torch.equal(exported[name], theirs[name]) for name in theirs)


def test_split_gives_views():
    fused = torch.randn(3, 8)
    ours = import_weights(pair_weights(TABLE, ["b.0.q", "b.0.k", "b.0.v"]), {"h.0.qkv": fused})
    assert {tensor.untyped_storage().data_ptr() for tensor in ours.values()} == {fused.untyped_storage().data_ptr()}


def test_shapes_on_the_meta_device():
    meta = {
        name: torch.empty(shape, device="meta")
        for name, shape in [("b.0.q", (4, 3)), ("b.0.k", (2, 3)), ("b.0.v", (2, 3))]
    }
    assert export_weights(pair_weights(TABLE, meta), meta)["h.0.qkv"].shape == (3, 8)


def test_weight_without_a_rule_is_named():
    with pytest.raises(InvalidInput, match=r"no rule for b\.other"):
        pair_weights(TABLE, ["b.w", "b.other"])


def test_missing_partner_is_named():
    with pytest.raises(InvalidInput, match=r"stored together with b\.0\.v"):
        pair_weights(TABLE, ["b.0.q", "b.0.k"])


@pytest.mark.parametrize("name", ["h.01.bias", "h.-1.bias", "h.1.bias.x", "xh.1.bias", "h.1xbias", "h.9999999.bias"])
def test_layer_numbers_in_patterns(name):
    assert match_pattern("h.{layer}.bias", name) is None
    assert match_pattern("h.{layer}.bias", "h.10.bias") == {"layer": "10"}
