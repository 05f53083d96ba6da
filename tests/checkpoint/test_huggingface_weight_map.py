"""Weight map rules: exact in both directions; missing rules are errors."""

import pytest
import torch

from peasy.checkpoint.huggingface.weight_map import (
    ROW_VECTOR,
    TRANSPOSE,
    WeightMap,
    WeightRule,
    export_weights,
    import_weights,
    match_pattern,
    pair_weights,
    split_fused,
)
from peasy.errors import InvalidInput

FUSED = WeightRule("h.{layer}.qkv", ("b.{layer}.q", "b.{layer}.k", "b.{layer}.v"), split_fused((4, 2, 2), 1, TRANSPOSE))
WEIGHT_MAP = WeightMap((FUSED, WeightRule("bias", "b.bias", ROW_VECTOR), WeightRule("w", "b.w")))
INTERNAL_NAMES = ["b.w", "b.1.k", "b.1.q", "b.1.v", "b.bias"]


def test_import_export_round_trip_is_exact():
    external = {"h.1.qkv": torch.randn(3, 8), "bias": torch.randn(1, 5), "w": torch.randn(2)}
    pairs = pair_weights(WEIGHT_MAP, INTERNAL_NAMES)
    internal = import_weights(pairs, external)
    assert set(internal) == set(INTERNAL_NAMES)
    assert internal["b.1.q"].shape == (4, 3)
    assert torch.equal(internal["b.1.k"], external["h.1.qkv"][:, 4:6].T)
    assert internal["b.bias"].shape == (5,)
    exported = export_weights(pairs, internal)
    assert exported.keys() == external.keys()
    assert all(torch.equal(exported[name], external[name]) for name in external)


def test_split_gives_views():
    fused = torch.randn(3, 8)
    internal = import_weights(pair_weights(WEIGHT_MAP, ["b.0.q", "b.0.k", "b.0.v"]), {"h.0.qkv": fused})
    assert {tensor.untyped_storage().data_ptr() for tensor in internal.values()} == {fused.untyped_storage().data_ptr()}


def test_shapes_on_the_meta_device():
    meta = {
        name: torch.empty(shape, device="meta")
        for name, shape in [("b.0.q", (4, 3)), ("b.0.k", (2, 3)), ("b.0.v", (2, 3))]
    }
    assert export_weights(pair_weights(WEIGHT_MAP, meta), meta)["h.0.qkv"].shape == (3, 8)


def test_weight_without_a_rule_is_named():
    with pytest.raises(InvalidInput, match=r"no rule for b\.other"):
        pair_weights(WEIGHT_MAP, ["b.w", "b.other"])


def test_missing_partner_is_named():
    with pytest.raises(InvalidInput, match=r"stored together with b\.0\.v"):
        pair_weights(WEIGHT_MAP, ["b.0.q", "b.0.k"])


@pytest.mark.parametrize("name", ["h.01.bias", "h.-1.bias", "h.1.bias.x", "xh.1.bias", "h.1xbias", "h.9999999.bias"])
def test_layer_numbers_in_patterns(name):
    assert match_pattern("h.{layer}.bias", name) is None
    assert match_pattern("h.{layer}.bias", "h.10.bias") == {"layer": "10"}
