"""Estimates compared with real allocations, and with sums done by hand."""

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.estimate import Estimate, Machine, Sizes, read_amount
from peasy.training.learner import GradientLearner
from peasy.training.objective import NextToken
from peasy.training.optimizer import AdamW, Muon, Optimizer

KINDS = ("gpt-tiny", "rnn-tiny", "cnn-tiny", "words-tiny")


def measured(name: str, recipe) -> tuple[int, int, int, Sizes]:
    """Bytes of weights, gradients and optimizer state after one real step, and the estimate."""
    model = build(preset(name, vocabulary=40), seed=1).train()
    optimizer = Optimizer(model, recipe)
    ids = torch.arange(24).reshape(2, 12)
    GradientLearner(model, NextToken(), optimizer, seed=0).learn([{"ids": ids, "targets": ids}], 1, 0.1)
    gradients = sum(weight.grad.nbytes for weight in model.parameters() if weight.grad is not None)
    held = sum(tensor.nbytes for tensor in optimizer.state().values())
    return sum(w.nbytes for w in model.parameters()), gradients, held, Sizes.of(model, recipe)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("recipe", [AdamW(), Muon()], ids=["adamw", "muon"])
def test_estimate_equals_allocation(name, recipe):
    weights, gradients, held, sizes = measured(name, recipe)
    assert (sizes.weights, sizes.weights, sizes.optimizer) == (weights, gradients, held)


def test_meta_model_has_the_same_sizes():
    _, _, _, sizes = measured("gpt-tiny", Muon())
    assert Sizes.of(build(preset("gpt-tiny", vocabulary=40), seed=None), Muon()) == sizes


@pytest.fixture
def gpt2():
    sizes = Sizes.of(build(preset("gpt2"), seed=None), AdamW())
    return Estimate(sizes, Machine(8, 312e12, 80e9, 300e9), rows=8, context=1024)


def test_gpt2_matches_manual_calculation(gpt2):
    n = 124_439_808
    assert gpt2.sizes.parameters == n
    assert gpt2.state == pytest.approx(16 * n, rel=1e-5)
    assert gpt2.cache == 2 * 12 * 768 * 2 * 1024
    assert gpt2.activations == 34 * 8192 * 768 * 12 + 6 * 8192 * 50257
    assert gpt2.computing == pytest.approx(8192 * (6 * n + 6 * 12 * 768 * 1024) / (312e12 * 0.4))
    assert gpt2.sending("ddp") == pytest.approx(2 * 7 / 8 * 4 * n / 300e9)
    assert gpt2.tokens_per_day("ddp") == pytest.approx(8 * 8192 * 86400 / gpt2.computing)


def test_fsdp_needs_less_memory_and_more_communication(gpt2):
    assert gpt2.held("fsdp") < gpt2.held("ddp")
    assert gpt2.sending("fsdp") > gpt2.sending("ddp")
    alone = Estimate(gpt2.sizes, Machine(1, 312e12, 80e9, 300e9), 8, 1024)
    assert alone.sending("ddp") == alone.sending("fsdp") == 0


def test_gqa_shrinks_the_kv_cache():
    grouped = preset("gpt-tiny", stack={"attention": {"heads": 2, "key_heads": 1}})
    whole = Sizes.of(build(preset("gpt-tiny"), seed=None), AdamW())
    assert 2 * Sizes.of(build(grouped, seed=None), AdamW()).cached == whole.cached
    assert Sizes.of(build(preset("rnn-tiny"), seed=None), AdamW()).cached == 0


def test_token_shift_is_cached_and_lookup_tables_cost_no_flops():
    plain, more = preset("gpt-tiny"), preset("gpt-tiny", stack={"shift": True}, embedding={"ngrams": 2, "buckets": 100})
    before, after = (Sizes.of(build(config, seed=None), AdamW()) for config in (plain, more))
    assert after.cached == before.cached + plain.stack.layers * plain.d_model
    assert after.tables == after.parameters - before.parameters == 100 * plain.d_model
    machine = Machine(1, 1e12, 1e9, 1e9)
    assert Estimate(after, machine, 4, 64).work == Estimate(before, machine, 4, 64).work


@pytest.mark.parametrize("said", ["much", "80 pigs", ""])
def test_invalid_amount_is_rejected(said):
    with pytest.raises(InvalidInput, match="amount"):
        read_amount(said)


@pytest.mark.parametrize("wrong", [{"accelerators": 0}, {"flops": 0.0}, {"memory": -1.0}, {"use": 1.5}])
def test_invalid_hardware_is_rejected(wrong):
    with pytest.raises(InvalidInput):
        Machine(**{"accelerators": 1, "flops": 1.0, "memory": 1.0, "bandwidth": 1.0} | wrong)
