"""Every kind of model proves itself; one that is broken on purpose is caught, and the right place is named."""

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
"""Untrained and without a scale: weights rounded to 8 bits alone, with exact products, move its answers by a sixth."""


@pytest.fixture(autouse=True)
def _one_thread():
    """What is computed here is tiny: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def texts_of(model):
    rows, sources = some_ids(3, 11).tolist(), some_ids(3, 7, seed=8).tolist()
    return [
        Text(tuple(row[:length]), tuple(source[:short]) if model.reads_source else None)
        for row, source, length, short in zip(rows, sources, LENGTHS, SOURCES, strict=True)
    ]


def prove(model, only=None, monkeypatch=None):
    """All equalities, or `only` some trials where the others would take their time for nothing."""
    if only is not None:
        for trial in ("_cached", "_batched", "_padded", "_chunked", "_fused", "_packed", "_exported", "_saved"):
            if trial not in only:
                monkeypatch.setattr(equality, trial, lambda question: [])
    return prove_model(model, texts_of(model), name="it")


def verdicts(proof):
    return {each.name: each.verdict for each in proof.equalities}


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in MANY)])
def test_every_kind_proves_itself(name):
    proof = prove(make(EVERYONE[name]))
    told = verdicts(proof)
    failed = [each.name for each in proof.equalities if each.verdict == FAILS]
    assert failed == (["packed int8 near full"] if name in STEEP else []), failed
    assert told["padded = unpadded"] == told["alone = in a batch"] == told["saved = original"] == HOLDS
    assert (told["cached = uncached"] == ABSENT) == name.startswith("encoder")
    assert all(each.why for each in proof.equalities if each.verdict == ABSENT)
    assert all(each.distance <= each.tolerance for each in proof.equalities if each.verdict == HOLDS)


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
def test_every_family_proves_itself_exported_too(name):
    config = preset(name, vocabulary=61, d_model=32, context=64, **FAMILIES[name])
    proof = prove(build(config, seed=3))
    assert proof.passed, [each for each in proof.equalities if each.verdict == FAILS]
    assert proof["exported = original"].distance < 1e-6  # the same weights, elsewhere in memory


def test_a_family_that_nobody_else_has_says_why_it_is_not_exported(monkeypatch):
    found = prove(make(EVERYONE["alibi"]), ["_exported"], monkeypatch)["exported = original"]
    assert found.verdict == ABSENT
    assert "No supported Hugging Face family" in found.why


def test_half_precision_has_its_own_tolerance(monkeypatch):
    proof = prove(make(EVERYONE["learned"]).bfloat16(), ["_cached", "_padded"], monkeypatch)
    assert proof.passed
    assert proof["cached = uncached"].tolerance == tolerance_of(torch.bfloat16)
    with pytest.raises(InvalidInput, match="no tolerance"):
        tolerance_of(torch.int8)


def test_nan_is_as_far_as_can_be_and_equal_infinities_are_equal():
    infinity = float("inf")
    assert apart(torch.tensor([-infinity, 1.0]), torch.tensor([-infinity, 1.0])).max() == 0
    assert apart(torch.tensor([torch.nan]), torch.tensor([torch.nan])).max() == infinity


def test_no_text_is_refused():
    with pytest.raises(InvalidInput, match="no text"):
        prove_model(make(EVERYONE["gru"]), [Text(())])


# --- broken on purpose ---


def unshifted(monkeypatch):
    """New tokens stand at 0 again, whatever the cache holds."""
    right = cache.extend_places

    def wrong(held, batch, time, real, device):
        query, key, shown = right(held, batch, time, real, device)
        return query - query[:, :1], key, shown

    for module in ("peasy.models.transformer", "peasy.nn.cache"):
        monkeypatch.setattr(f"{module}.extend_places", wrong)


def test_positions_that_are_not_shifted_are_found_where_they_enter(monkeypatch):
    unshifted(monkeypatch)
    proof = prove(make(EVERYONE["learned"]), ["_cached", "_chunked"], monkeypatch)
    found = proof["cached = uncached"]
    assert (found.verdict, found.text) == (FAILS, 0)
    assert (found.where.layer, found.where.step, found.where.position) == (0, "residual", LENGTHS[0] // 2)
    assert proof["whole = in chunks"].where.position == 1


def test_positions_that_are_not_shifted_are_found_in_the_queries_where_those_turn(monkeypatch):
    unshifted(monkeypatch)
    found = prove(make(EVERYONE["rotary"]), ["_cached"], monkeypatch)["cached = uncached"]
    where = found.where
    assert (where.layer, where.part, where.step, where.head) == (0, "attention", "query", 0)
    assert where.position == LENGTHS[0] // 2


def test_a_mask_aligned_top_left_is_found_in_chunks(monkeypatch):
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
def test_padding_that_is_seen_is_found(name, stack, monkeypatch):
    monkeypatch.setattr("peasy.models.transformer.padding_or_none", lambda real: None)
    proof = prove(make(EVERYONE[name]), ["_padded"], monkeypatch)
    where = proof["padded = unpadded"].where
    assert proof["padded = unpadded"].verdict == FAILS
    assert (where.stack, where.layer) == (stack, 0)


def test_a_text_that_gets_the_scores_of_its_neighbour_is_found(monkeypatch):
    right = Decoder.read
    monkeypatch.setattr(Decoder, "read", lambda self, *args, **how: right(self, *args, **how)[::-1])
    proof = prove(make(EVERYONE["nowhere"]), ["_cached", "_batched"], monkeypatch)
    assert verdicts(proof) == {"cached = uncached": HOLDS, "alone = in a batch": FAILS}


def test_a_state_that_is_forgotten_is_found(monkeypatch):
    right = RecurrentModel.hidden

    def forgetful(self, ids, *, cache=None, **how):
        return right(self, ids, cache=None if cache is None else SimpleNamespace(state=None, length=0), **how)

    monkeypatch.setattr(RecurrentModel, "hidden", forgetful)
    found = prove(make(EVERYONE["gru"]), ["_cached"], monkeypatch)["cached = uncached"]
    assert (found.verdict, found.where.position) == (FAILS, LENGTHS[found.text] // 2)


def test_a_kernel_that_gets_one_head_wrong_is_found(monkeypatch):
    right = attention.attend_fused

    def wrong(look):
        context = right(look).clone()
        context[:, 2, 1:] *= 1.01
        return context

    monkeypatch.setattr(attention, "attend_fused", wrong)
    proof = prove(make(EVERYONE["learned"]), ["_fused", "_padded"], monkeypatch)
    found = proof["fused = formula"]
    assert found.verdict == FAILS
    assert (found.where.layer, found.where.head, found.where.position) == (0, 2, 1)


def test_an_export_that_loses_a_head_is_found_by_layer_and_head(monkeypatch):
    right = equality.export_again

    def wrong(model):
        again = right(model)
        again.decoder.blocks[1].attention.value.weight[16:24] *= 1.1
        return again

    monkeypatch.setattr(equality, "export_again", wrong)
    found = prove(make(EVERYONE["learned"]), ["_exported"], monkeypatch)["exported = original"]
    where = found.where
    assert (where.layer, where.part, where.step, where.head, where.position) == (1, "attention", "value", 2, 0)


def test_packing_that_goes_too_far_is_found_and_measured(monkeypatch):
    def wrong(model, kind, **how):
        packed = packing.pack(model, kind, deterministic=False)
        packed.decoder.blocks[1].feedforward = other = copy.deepcopy(model.decoder.blocks[1].feedforward)
        other.up.weight.mul_(1.5)
        return packed

    monkeypatch.setattr(thrift, "pack", wrong)
    proof = prove(make(EVERYONE["learned"]), ["_packed"], monkeypatch)
    for name in ("packed float32 = full", "packed int8 near full"):
        found = proof[name]
        assert found.verdict == FAILS
        assert found.where.layer <= 1
        assert found.measures["kl"] > 0.01
        assert 0 <= found.measures["top-1"] < 1
    assert proof["packed float32 = full"].where.layer == 1
    assert proof["same bits in any batch, int8"].verdict == ABSENT


def test_bits_that_depend_on_company_are_found(monkeypatch):
    right = Decoder.read

    def wrong(self, texts, *args, **how):
        return [scores + 1e-6 * (len(texts) > 2) for scores in right(self, texts, *args, **how)]

    model = make(EVERYONE["learned"])
    packed = packing.pack(model, "float32", deterministic=True)
    name = "same bits in any batch"
    assert thrift.compare_bits(name, packed, texts_of(model)).verdict == HOLDS
    monkeypatch.setattr(Decoder, "read", wrong)
    found = thrift.compare_bits(name, packed, texts_of(model))
    assert found.verdict == FAILS
    assert found.measures["differing"] > 0


def test_a_vector_that_counts_padding_is_found(monkeypatch):
    right = Encoder.pool
    monkeypatch.setattr(Encoder, "pool", lambda self, hidden, real=None: right(self, hidden))
    found = prove(make(EVERYONE["encoder"]), ["_padded"], monkeypatch)["padded = unpadded"]
    assert found.verdict == FAILS
    assert "that of the text does not" in found.why


def test_a_weight_that_is_nan_is_found_in_its_layer(monkeypatch):
    model = make(EVERYONE["learned"])
    with torch.no_grad():
        model.decoder.blocks[2].attention.key.bias[9] = torch.nan
    found = prove(model, ["_cached"], monkeypatch)["cached = uncached"]
    assert found.verdict == FAILS
    assert (found.where.layer, found.where.step, found.where.head) == (2, "key", 1)
