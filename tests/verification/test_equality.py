"""Equalities hold for every kind of model; deliberate faults are detected and located."""

import copy
from types import SimpleNamespace

import pytest
import torch
from tests.models.tiny_models import EVERYONE, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation import packed as packing
from peasy.models.build import build
from peasy.models.decoder import Decoder
from peasy.models.encoder import Encoder
from peasy.models.preset import preset
from peasy.models.recurrent import RecurrentModel
from peasy.nn import attention, kv_cache
from peasy.nn.mask import MaskSpec
from peasy.verification import equality, packed_vs_full
from peasy.verification.equality import prove_model
from peasy.verification.paths import TokenSequence
from peasy.verification.tolerance import relative_error, tolerance_for
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE

FEW = ["rotary", "window", "encoder-after", "both-two-vocabularies", "gru", "convolution", "ngram", "words"]
MANY = [name for name in EVERYONE if name not in FEW]
LENGTHS, SOURCES = (11, 6, 1), (7, 3, 5)
STEEP = ["both-relative"]
"""Untrained and unscaled: int8 weights alone change its logits by a sixth."""


@pytest.fixture(autouse=True)
def _one_thread():
    """Inputs are tiny: more threads would only slow the tests down."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def sequences_for(model):
    rows, sources = some_ids(3, 11).tolist(), some_ids(3, 7, seed=8).tolist()
    return [
        TokenSequence(tuple(row[:length]), tuple(source[:short]) if model.reads_source else None)
        for row, source, length, short in zip(rows, sources, LENGTHS, SOURCES, strict=True)
    ]


def prove(model, only=None, monkeypatch=None):
    """Check all equalities, or `only` some, to save time."""
    if only is not None:
        for check in ("_cached", "_batched", "_padded", "_chunked", "_fused", "_packed", "_exported", "_saved"):
            if check not in only:
                monkeypatch.setattr(equality, check, lambda question: [])
    return prove_model(model, sequences_for(model), name="it")


def verdicts(proof):
    return {item.name: item.verdict for item in proof.equalities}


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in MANY)])
def test_equalities_hold_for_every_kind(name):
    proof = prove(make(EVERYONE[name]))
    by_name = verdicts(proof)
    failed = [item.name for item in proof.equalities if item.verdict == FAILS]
    assert failed == (["packed int8 near full"] if name in STEEP else []), failed
    assert by_name["padded = unpadded"] == by_name["alone = in a batch"] == by_name["saved = original"] == HOLDS
    assert (by_name["cached = uncached"] == NOT_APPLICABLE) == name.startswith("encoder")
    assert all(item.reason for item in proof.equalities if item.verdict == NOT_APPLICABLE)
    assert all(item.distance <= item.tolerance for item in proof.equalities if item.verdict == HOLDS)


SMALL = {"layers": 2, "attention": {"heads": 4, "key_heads": None, "d_head": None}, "feedforward": {"width": 64}}
SHARED = {"layers": 2, "attention": {"heads": 4, "key_heads": 2, "d_head": None}, "feedforward": {"width": 64}}
FAMILIES = {
    "gpt2": {"stack": SMALL},
    "llama-tiny": {"stack": SHARED},
    "mistral-7b": {"stack": SHARED},
    "qwen2-500m": {"stack": SHARED},
    "qwen3-600m": {"stack": SHARED},
    "bert-base": {"stack": SMALL},
    "roberta-base": {"stack": SMALL},
    "marian": {"encoder": SMALL, "decoder": SMALL},
    "t5-small": {"encoder": SMALL, "decoder": SMALL},
}


@pytest.mark.parametrize(
    "name", ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "gpt2")]
)
def test_equalities_hold_for_every_family(name):
    config = preset(name, vocabulary=61, d_model=32, context=64, **FAMILIES[name])
    proof = prove(build(config, seed=3))
    assert proof.passed, [item for item in proof.equalities if item.verdict == FAILS]
    assert proof["exported = original"].distance < 1e-6  # the same weights at other addresses


def test_unsupported_family_is_not_applicable_with_a_reason(monkeypatch):
    result = prove(make(EVERYONE["alibi"]), ["_exported"], monkeypatch)["exported = original"]
    assert result.verdict == NOT_APPLICABLE
    assert "No supported Hugging Face family" in result.reason


def test_half_precision_has_its_own_tolerance(monkeypatch):
    proof = prove(make(EVERYONE["learned"]).bfloat16(), ["_cached", "_padded"], monkeypatch)
    assert proof.passed
    assert proof["cached = uncached"].tolerance == tolerance_for(torch.bfloat16)
    with pytest.raises(InvalidInput, match="no tolerance"):
        tolerance_for(torch.int8)


def test_nan_counts_as_infinite_error_and_equal_infinities_as_equal():
    infinity = float("inf")
    assert relative_error(torch.tensor([-infinity, 1.0]), torch.tensor([-infinity, 1.0])).max() == 0
    assert relative_error(torch.tensor([torch.nan]), torch.tensor([torch.nan])).max() == infinity


def test_empty_sequence_is_refused():
    with pytest.raises(InvalidInput, match="no tokens"):
        prove_model(make(EVERYONE["gru"]), [TokenSequence(())])


# --- deliberate faults ---


def unshifted(monkeypatch):
    """Positions of new tokens start at 0 again, whatever the cache contains."""
    right = kv_cache.extend_positions

    def wrong(held, batch, time, real, device):
        query, key, shown = right(held, batch, time, real, device)
        return query - query[:, :1], key, shown

    for module in ("peasy.models.transformer", "peasy.nn.kv_cache"):
        monkeypatch.setattr(f"{module}.extend_places", wrong)


def test_unshifted_learned_positions_are_located_in_the_residual_stream(monkeypatch):
    unshifted(monkeypatch)
    proof = prove(make(EVERYONE["learned"]), ["_cached", "_chunked"], monkeypatch)
    result = proof["cached = uncached"]
    assert (result.verdict, result.sequence) == (FAILS, 0)
    assert (result.divergence.layer, result.divergence.step, result.divergence.position) == (
        0,
        "residual",
        LENGTHS[0] // 2,
    )
    assert proof["whole = in chunks"].divergence.position == 1


def test_unshifted_rotary_positions_are_located_in_the_queries(monkeypatch):
    unshifted(monkeypatch)
    result = prove(make(EVERYONE["rotary"]), ["_cached"], monkeypatch)["cached = uncached"]
    where = result.divergence
    assert (where.layer, where.part, where.step, where.head) == (0, "attention", "query", 0)
    assert where.position == LENGTHS[0] // 2


def test_top_left_mask_fails_in_chunks(monkeypatch):
    monkeypatch.setattr(
        MaskSpec,
        "position_distances",
        lambda self, n_key: self.query[:, :, None] - self.query[:, :1, None] - self.key[:, None, -n_key:],
    )
    proof = prove(make(EVERYONE["learned"]), ["_cached", "_chunked"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "whole = in chunks": FAILS}
    where = proof["whole = in chunks"].divergence
    assert (where.layer, where.part, where.step, where.head, where.position) == (0, "attention", "context", 0, 1)


@pytest.mark.parametrize(("name", "stack"), [("encoder", "encoder"), ("nowhere", "decoder")])
def test_unmasked_padding_is_detected(name, stack, monkeypatch):
    monkeypatch.setattr("peasy.models.transformer.normalize_padding_mask", lambda real: None)
    proof = prove(make(EVERYONE[name]), ["_padded"], monkeypatch)
    where = proof["padded = unpadded"].divergence
    assert proof["padded = unpadded"].verdict == FAILS
    assert (where.stack, where.layer) == (stack, 0)


def test_swapped_logits_in_a_batch_are_detected(monkeypatch):
    right = Decoder.forward_varlen
    monkeypatch.setattr(Decoder, "forward_varlen", lambda self, *args, **how: right(self, *args, **how)[::-1])
    proof = prove(make(EVERYONE["nowhere"]), ["_cached", "_batched"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "alone = in a batch": FAILS}


def test_lost_recurrent_state_is_detected(monkeypatch):
    right = RecurrentModel.hidden

    def forgetful(self, ids, *, cache=None, **how):
        return right(self, ids, cache=None if cache is None else SimpleNamespace(state=None, length=0), **how)

    monkeypatch.setattr(RecurrentModel, "masked", forgetful)
    result = prove(make(EVERYONE["gru"]), ["_cached"], monkeypatch)["cached = uncached"]
    assert (result.verdict, result.divergence.position) == (FAILS, LENGTHS[result.sequence] // 2)


def test_kernel_fault_in_one_head_is_located(monkeypatch):
    right = attention.attend_fused

    def wrong(look):
        context = right(look).clone()
        context[:, 2, 1:] *= 1.01
        return context

    monkeypatch.setattr(attention, "attend_fused", wrong)
    proof = prove(make(EVERYONE["learned"]), ["_fused", "_padded"], monkeypatch)
    result = proof["fused = formula"]
    assert result.verdict == FAILS
    assert (result.divergence.layer, result.divergence.head, result.divergence.position) == (0, 2, 1)


def test_export_fault_is_located_by_layer_and_head(monkeypatch):
    right = equality.export_roundtrip

    def wrong(model):
        reloaded = right(model)
        reloaded.decoder.blocks[1].attention.value.weight[16:24] *= 1.1
        return reloaded

    monkeypatch.setattr(equality, "export_roundtrip", wrong)
    result = prove(make(EVERYONE["learned"]), ["_exported"], monkeypatch)["exported = original"]
    where = result.divergence
    assert (where.layer, where.part, where.step, where.head, where.position) == (1, "attention", "value", 2, 0)


def test_inaccurate_packing_is_detected_and_measured(monkeypatch):
    def wrong(model, kind, **how):
        packed = packing.pack(model, kind, deterministic=False)
        packed.decoder.blocks[1].feedforward = other = copy.deepcopy(model.decoder.blocks[1].feedforward)
        other.up.weight.mul_(1.5)
        return packed

    monkeypatch.setattr(packed_vs_full, "pack", wrong)
    proof = prove(make(EVERYONE["learned"]), ["_packed"], monkeypatch)
    for name in ("packed float32 = full", "packed int8 near full"):
        result = proof[name]
        assert result.verdict == FAILS
        assert result.divergence.layer <= 1
        assert result.metrics["kl"] > 0.01
        assert 0 <= result.metrics["top-1"] < 1
    assert proof["packed float32 = full"].divergence.layer == 1
    assert proof["same bits in any batch, int8"].verdict == NOT_APPLICABLE


def test_batch_dependent_bits_are_detected(monkeypatch):
    right = Decoder.forward_varlen

    def wrong(self, texts, *args, **how):
        return [logits + 1e-6 * (len(texts) > 2) for logits in right(self, texts, *args, **how)]

    model = make(EVERYONE["learned"])
    packed = packing.pack(model, "float32", deterministic=True)
    name = "same bits in any batch"
    assert packed_vs_full.compare_batch_invariance(name, packed, sequences_for(model)).verdict == HOLDS
    monkeypatch.setattr(Decoder, "forward_varlen", wrong)
    result = packed_vs_full.compare_batch_invariance(name, packed, sequences_for(model))
    assert result.verdict == FAILS
    assert result.metrics["differing"] > 0


def test_pooling_over_padding_is_detected(monkeypatch):
    right = Encoder.pool
    monkeypatch.setattr(Encoder, "pool", lambda self, hidden, padding_mask=None: right(self, hidden))
    result = prove(make(EVERYONE["encoder"]), ["_padded"], monkeypatch)["padded = unpadded"]
    assert result.verdict == FAILS
    assert "the pooled vector does not" in result.reason


def test_nan_weight_is_located_in_its_layer(monkeypatch):
    model = make(EVERYONE["learned"])
    with torch.no_grad():
        model.decoder.blocks[2].attention.key.bias[9] = torch.nan
    result = prove(model, ["_cached"], monkeypatch)["cached = uncached"]
    assert result.verdict == FAILS
    assert (result.divergence.layer, result.divergence.step, result.divergence.head) == (2, "key", 1)
