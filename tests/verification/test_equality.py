"""Equalities hold for every kind of model; deliberate faults are detected and located."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tests.models.tiny_models import ALL_MODELS, make, some_ids

from peasy.errors import InvalidInput
from peasy.generation import packed as packing
from peasy.models.baselines import RecurrentModel
from peasy.models.build import build
from peasy.models.encoder import Encoder
from peasy.models.preset import preset
from peasy.models.transformer import Decoder
from peasy.nn import kv_cache
from peasy.nn.attention_backends import FusedBackend
from peasy.nn.mask import MaskSpec
from peasy.verification import equality
from peasy.verification.equality import prove_model, relative_error, tolerance_for
from peasy.verification.paths import TokenSequence
from peasy.verification.verdict import FAILS, HOLDS, NOT_APPLICABLE

FEW = ["rotary", "window", "encoder-post-norm", "encoder-relative", "seq2seq-two-vocabularies", "gru", "convolution"]
FEW += ["ngram", "words"]
MANY = [name for name in ALL_MODELS if name not in FEW]
LENGTHS, SOURCE_LENGTHS = (11, 6, 1), (7, 3, 5)
LARGE_INT8_ERROR = ["seq2seq-relative"]
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
        TokenSequence(tuple(row[:length]), tuple(source[:source_length]) if model.is_encoder_decoder else None)
        for row, source, length, source_length in zip(rows, sources, LENGTHS, SOURCE_LENGTHS, strict=True)
    ]


def prove(model, only=None, monkeypatch=None):
    """Check all equalities, or `only` some, to save time."""
    if only is not None:
        monkeypatch.setattr(equality, "CHECKS", {name: equality.CHECKS[name] for name in only})
    return prove_model(model, sequences_for(model), name="model")


def verdicts(proof):
    return {item.name: item.verdict for item in proof.equalities}


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in MANY)])
def test_equalities_hold_for_every_kind(name):
    proof = prove(make(ALL_MODELS[name]))
    by_name = verdicts(proof)
    failed = [item.name for item in proof.equalities if item.verdict == FAILS]
    assert failed == (["packed int8 ≈ full"] if name in LARGE_INT8_ERROR else []), failed
    assert by_name["padded = unpadded"] == by_name["single = batched"] == by_name["saved = original"] == HOLDS
    assert (by_name["cached = uncached"] == NOT_APPLICABLE) == name.startswith("encoder")
    assert all(item.reason for item in proof.equalities if item.verdict == NOT_APPLICABLE)
    assert all(item.distance <= item.tolerance for item in proof.equalities if item.verdict == HOLDS)


SMALL = {
    "num_layers": 2,
    "attention": {"num_heads": 4, "num_kv_heads": None, "d_head": None},
    "feedforward": {"d_ff": 64},
}
GROUPED = SMALL | {"attention": {"num_heads": 4, "num_kv_heads": 2, "d_head": None}}
FAMILIES = {
    "gpt2": {"stack": SMALL},
    "llama-tiny": {"stack": GROUPED},
    "mistral-7b": {"stack": GROUPED},
    "qwen2-500m": {"stack": GROUPED},
    "qwen3-600m": {"stack": GROUPED},
    "bert-base": {"stack": SMALL},
    "roberta-base": {"stack": SMALL},
    "marian": {"encoder": SMALL, "decoder": SMALL},
    "t5-small": {"encoder": SMALL, "decoder": SMALL},
}


@pytest.mark.parametrize(
    "name", ["gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name != "gpt2")]
)
def test_equalities_hold_for_every_family(name):
    config = preset(name, vocab_size=61, d_model=32, max_seq_len=64, **FAMILIES[name])
    proof = prove(build(config, seed=3))
    assert proof.passed, [item for item in proof.equalities if item.verdict == FAILS]
    assert proof["exported = original"].distance < 1e-6  # the same weights at other addresses


def test_unsupported_family_is_not_applicable_with_a_reason(monkeypatch):
    result = prove(make(ALL_MODELS["alibi"]), ["exported"], monkeypatch)["exported = original"]
    assert result.verdict == NOT_APPLICABLE
    assert "No supported Hugging Face family" in result.reason


def test_half_precision_has_its_own_tolerance(monkeypatch):
    proof = prove(make(ALL_MODELS["learned"]).bfloat16(), ["cached", "padded"], monkeypatch)
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
        prove_model(make(ALL_MODELS["gru"]), [TokenSequence(())])


# --- deliberate faults ---


def unshifted(monkeypatch):
    """Positions of new tokens start at 0 again, whatever the cache contains."""
    right = kv_cache.extend_positions

    def wrong(*args):
        query_positions, key_positions, padding_mask = right(*args)
        return query_positions - query_positions[:, :1], key_positions, padding_mask

    for module in ("peasy.models.transformer", "peasy.nn.kv_cache"):
        monkeypatch.setattr(f"{module}.extend_positions", wrong)


def test_unshifted_learned_positions_are_located_in_the_residual_stream(monkeypatch):
    unshifted(monkeypatch)
    proof = prove(make(ALL_MODELS["learned"]), ["cached", "chunked"], monkeypatch)
    result = proof["cached = uncached"]
    assert (result.verdict, result.sequence) == (FAILS, 0)
    assert (result.divergence.layer, result.divergence.step, result.divergence.position) == (
        0,
        "residual",
        LENGTHS[0] // 2,
    )
    assert proof["whole = chunked"].divergence.position == 1


def test_unshifted_rotary_positions_are_located_in_the_queries(monkeypatch):
    unshifted(monkeypatch)
    result = prove(make(ALL_MODELS["rotary"]), ["cached"], monkeypatch)["cached = uncached"]
    point = result.divergence
    assert (point.layer, point.part, point.step, point.head) == (0, "attention", "query", 0)
    assert point.position == LENGTHS[0] // 2


def test_top_left_mask_fails_in_chunks(monkeypatch):
    monkeypatch.setattr(
        MaskSpec,
        "distances",
        lambda self, n_key: (
            self.query_positions[:, :, None] - self.query_positions[:, :1, None] - self.key_positions[:, None, -n_key:]
        ),
    )
    proof = prove(make(ALL_MODELS["learned"]), ["cached", "chunked"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "whole = chunked": FAILS}
    point = proof["whole = chunked"].divergence
    assert (point.layer, point.part, point.step, point.head, point.position) == (0, "attention", "context", 0, 1)


@pytest.mark.parametrize(("name", "stack"), [("encoder", "encoder"), ("no-position", "decoder")])
def test_unmasked_padding_is_detected(name, stack, monkeypatch):
    monkeypatch.setattr("peasy.models.transformer.normalize_padding_mask", lambda padding_mask: None)
    proof = prove(make(ALL_MODELS[name]), ["padded"], monkeypatch)
    point = proof["padded = unpadded"].divergence
    assert proof["padded = unpadded"].verdict == FAILS
    assert (point.stack, point.layer) == (stack, 0)


def test_swapped_logits_in_a_batch_are_detected(monkeypatch):
    right = Decoder.forward_varlen
    monkeypatch.setattr(Decoder, "forward_varlen", lambda self, *args, **kwargs: right(self, *args, **kwargs)[::-1])
    proof = prove(make(ALL_MODELS["no-position"]), ["cached", "batched"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "single = batched": FAILS}


def test_lost_recurrent_state_is_detected(monkeypatch):
    right = RecurrentModel._hidden

    def forgetful(self, ids, inputs):
        empty = SimpleNamespace(hidden_state=None, length=0)
        return right(self, ids, inputs if inputs.cache is None else replace(inputs, cache=empty))

    monkeypatch.setattr(RecurrentModel, "_hidden", forgetful)
    result = prove(make(ALL_MODELS["gru"]), ["cached"], monkeypatch)["cached = uncached"]
    assert (result.verdict, result.divergence.position) == (FAILS, LENGTHS[result.sequence] // 2)


def test_kernel_fault_in_one_head_is_located(monkeypatch):
    right = FusedBackend.run

    def wrong(self, inputs):
        context = right(self, inputs).clone()
        context[:, 2, 1:] *= 1.01
        return context

    monkeypatch.setattr(FusedBackend, "run", wrong)
    proof = prove(make(ALL_MODELS["learned"]), ["fused", "padded"], monkeypatch)
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
    result = prove(make(ALL_MODELS["learned"]), ["exported"], monkeypatch)["exported = original"]
    point = result.divergence
    assert (point.layer, point.part, point.step, point.head, point.position) == (1, "attention", "value", 2, 0)


def test_inaccurate_packing_is_detected_and_measured(monkeypatch):
    def wrong(model, dtype, **kwargs):
        packed = packing.pack(model, dtype, deterministic=False)
        packed.decoder.blocks[1].feedforward = other = copy.deepcopy(model.decoder.blocks[1].feedforward)
        other.up.weight.mul_(1.5)
        return packed

    monkeypatch.setattr(equality, "pack", wrong)
    proof = prove(make(ALL_MODELS["learned"]), ["packed"], monkeypatch)
    for name in ("packed float32 = full", "packed int8 ≈ full"):
        result = proof[name]
        assert result.verdict == FAILS
        assert result.divergence.layer <= 1
        assert result.metrics["kl"] > 0.01
        assert 0 <= result.metrics["top-1"] < 1
    assert proof["packed float32 = full"].divergence.layer == 1
    assert proof["batch invariant, int8"].verdict == NOT_APPLICABLE


def test_batch_dependent_bits_are_detected(monkeypatch):
    right = Decoder.forward_varlen

    def wrong(self, sequences, *args, **kwargs):
        return [logits + 1e-6 * (len(sequences) > 2) for logits in right(self, sequences, *args, **kwargs)]

    model = make(ALL_MODELS["learned"])
    packed = packing.pack(model, "float32", deterministic=True)
    name = "batch invariant"
    assert equality.compare_batch_invariance(name, packed, sequences_for(model)).verdict == HOLDS
    monkeypatch.setattr(Decoder, "forward_varlen", wrong)
    result = equality.compare_batch_invariance(name, packed, sequences_for(model))
    assert result.verdict == FAILS
    assert result.metrics["num_differing"] > 0


def test_pooling_over_padding_is_detected(monkeypatch):
    right = Encoder.pool
    monkeypatch.setattr(Encoder, "pool", lambda self, hidden, padding_mask=None: right(self, hidden))
    result = prove(make(ALL_MODELS["encoder"]), ["padded"], monkeypatch)["padded = unpadded"]
    assert result.verdict == FAILS
    assert "the pooled vector does not" in result.reason


def test_nan_weight_is_located_in_its_layer(monkeypatch):
    model = make(ALL_MODELS["learned"])
    with torch.no_grad():
        model.decoder.blocks[2].attention.key.bias[9] = torch.nan
    result = prove(model, ["cached"], monkeypatch)["cached = uncached"]
    assert result.verdict == FAILS
    assert (result.divergence.layer, result.divergence.step, result.divergence.head) == (2, "key", 1)
