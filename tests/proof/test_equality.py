"""Equalities hold for every kind of model; deliberate faults are detected and located."""

import copy
from types import SimpleNamespace

import pytest
import torch
from tests.models.zoo import EVERYONE, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation import packed as packing
from peasy.models.build import build
from peasy.models.decoder import Decoder
from peasy.models.encoder import Encoder
from peasy.models.preset import preset
from peasy.models.recurrent import RecurrentModel
from peasy.nn import attention, cache
from peasy.nn.sight import Sight
from peasy.proof import equality, thrift
from peasy.proof.equality import prove_model
from peasy.proof.road import Text
from peasy.proof.tolerance import apart, tolerance_of
from peasy.proof.verdict import ABSENT, FAILS, HOLDS

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
        Text(tuple(row[:length]), tuple(source[:short]) if model.reads_source else None)
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
    assert (by_name["cached = uncached"] == ABSENT) == name.startswith("encoder")
    assert all(item.why for item in proof.equalities if item.verdict == ABSENT)
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
    assert result.verdict == ABSENT
    assert "No supported Hugging Face family" in result.why


def test_half_precision_has_its_own_tolerance(monkeypatch):
    proof = prove(make(EVERYONE["learned"]).bfloat16(), ["_cached", "_padded"], monkeypatch)
    assert proof.passed
    assert proof["cached = uncached"].tolerance == tolerance_of(torch.bfloat16)
    with pytest.raises(InvalidInput, match="no tolerance"):
        tolerance_of(torch.int8)


def test_nan_counts_as_infinite_error_and_equal_infinities_as_equal():
    infinity = float("inf")
    assert apart(torch.tensor([-infinity, 1.0]), torch.tensor([-infinity, 1.0])).max() == 0
    assert apart(torch.tensor([torch.nan]), torch.tensor([torch.nan])).max() == infinity


def test_empty_sequence_is_refused():
    with pytest.raises(InvalidInput, match="no tokens"):
        prove_model(make(EVERYONE["gru"]), [Text(())])


# --- deliberate faults ---


def unshifted(monkeypatch):
    """Positions of new tokens start at 0 again, whatever the cache contains."""
    right = cache.extend_places

    def wrong(held, batch, time, real, device):
        query, key, shown = right(held, batch, time, real, device)
        return query - query[:, :1], key, shown

    for module in ("peasy.models.transformer", "peasy.nn.cache"):
        monkeypatch.setattr(f"{module}.extend_places", wrong)


def test_unshifted_learned_positions_are_located_in_the_residual_stream(monkeypatch):
    unshifted(monkeypatch)
    proof = prove(make(EVERYONE["learned"]), ["_cached", "_chunked"], monkeypatch)
    result = proof["cached = uncached"]
    assert (result.verdict, result.text) == (FAILS, 0)
    assert (result.where.layer, result.where.step, result.where.position) == (0, "residual", LENGTHS[0] // 2)
    assert proof["whole = in chunks"].where.position == 1


def test_unshifted_rotary_positions_are_located_in_the_queries(monkeypatch):
    unshifted(monkeypatch)
    result = prove(make(EVERYONE["rotary"]), ["_cached"], monkeypatch)["cached = uncached"]
    where = result.where
    assert (where.layer, where.part, where.step, where.head) == (0, "attention", "query", 0)
    assert where.position == LENGTHS[0] // 2


def test_top_left_mask_fails_in_chunks(monkeypatch):
    monkeypatch.setattr(
        Sight,
        "distances",
        lambda self, n_key: self.query[:, :, None] - self.query[:, :1, None] - self.key[:, None, -n_key:],
    )
    proof = prove(make(EVERYONE["learned"]), ["_cached", "_chunked"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "whole = in chunks": FAILS}
    where = proof["whole = in chunks"].where
    assert (where.layer, where.part, where.step, where.head, where.position) == (0, "attention", "context", 0, 1)


@pytest.mark.parametrize(("name", "stack"), [("encoder", "encoder"), ("nowhere", "decoder")])
def test_unmasked_padding_is_detected(name, stack, monkeypatch):
    monkeypatch.setattr("peasy.models.transformer.padding_or_none", lambda real: None)
    proof = prove(make(EVERYONE[name]), ["_padded"], monkeypatch)
    where = proof["padded = unpadded"].where
    assert proof["padded = unpadded"].verdict == FAILS
    assert (where.stack, where.layer) == (stack, 0)


def test_swapped_logits_in_a_batch_are_detected(monkeypatch):
    right = Decoder.read
    monkeypatch.setattr(Decoder, "read", lambda self, *args, **how: right(self, *args, **how)[::-1])
    proof = prove(make(EVERYONE["nowhere"]), ["_cached", "_batched"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "alone = in a batch": FAILS}


def test_lost_recurrent_state_is_detected(monkeypatch):
    right = RecurrentModel.hidden

    def forgetful(self, ids, *, cache=None, **how):
        return right(self, ids, cache=None if cache is None else SimpleNamespace(state=None, length=0), **how)

    monkeypatch.setattr(RecurrentModel, "hidden", forgetful)
    result = prove(make(EVERYONE["gru"]), ["_cached"], monkeypatch)["cached = uncached"]
    assert (result.verdict, result.where.position) == (FAILS, LENGTHS[result.text] // 2)


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
    assert (result.where.layer, result.where.head, result.where.position) == (0, 2, 1)


def test_export_fault_is_located_by_layer_and_head(monkeypatch):
    right = equality.export_again

    def wrong(model):
        reloaded = right(model)
        reloaded.decoder.blocks[1].attention.value.weight[16:24] *= 1.1
        return reloaded

    monkeypatch.setattr(equality, "export_again", wrong)
    result = prove(make(EVERYONE["learned"]), ["_exported"], monkeypatch)["exported = original"]
    where = result.where
    assert (where.layer, where.part, where.step, where.head, where.position) == (1, "attention", "value", 2, 0)


def test_inaccurate_packing_is_detected_and_measured(monkeypatch):
    def wrong(model, kind, **how):
        packed = packing.pack(model, kind, deterministic=False)
        packed.decoder.blocks[1].feedforward = other = copy.deepcopy(model.decoder.blocks[1].feedforward)
        other.up.weight.mul_(1.5)
        return packed

    monkeypatch.setattr(thrift, "pack", wrong)
    proof = prove(make(EVERYONE["learned"]), ["_packed"], monkeypatch)
    for name in ("packed float32 = full", "packed int8 near full"):
        result = proof[name]
        assert result.verdict == FAILS
        assert result.where.layer <= 1
        assert result.measures["kl"] > 0.01
        assert 0 <= result.measures["top-1"] < 1
    assert proof["packed float32 = full"].where.layer == 1
    assert proof["same bits in any batch, int8"].verdict == ABSENT


def test_batch_dependent_bits_are_detected(monkeypatch):
    right = Decoder.read

    def wrong(self, texts, *args, **how):
        return [logits + 1e-6 * (len(texts) > 2) for logits in right(self, texts, *args, **how)]

    model = make(EVERYONE["learned"])
    packed = packing.pack(model, "float32", deterministic=True)
    name = "same bits in any batch"
    assert thrift.compare_bits(name, packed, sequences_for(model)).verdict == HOLDS
    monkeypatch.setattr(Decoder, "read", wrong)
    result = thrift.compare_bits(name, packed, sequences_for(model))
    assert result.verdict == FAILS
    assert result.measures["differing"] > 0


def test_pooling_over_padding_is_detected(monkeypatch):
    right = Encoder.pool
    monkeypatch.setattr(Encoder, "pool", lambda self, hidden, real=None: right(self, hidden))
    result = prove(make(EVERYONE["encoder"]), ["_padded"], monkeypatch)["padded = unpadded"]
    assert result.verdict == FAILS
    assert "the pooled vector does not" in result.why


def test_nan_weight_is_located_in_its_layer(monkeypatch):
    model = make(EVERYONE["learned"])
    with torch.no_grad():
        model.decoder.blocks[2].attention.key.bias[9] = torch.nan
    result = prove(model, ["_cached"], monkeypatch)["cached = uncached"]
    assert result.verdict == FAILS
    assert (result.where.layer, result.where.step, result.where.head) == (2, "key", 1)
