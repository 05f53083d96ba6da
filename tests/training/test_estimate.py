"""Estimates compared with real allocations, and with sums done by hand."""

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.estimate import Hardware, ModelSizes, TrainingEstimate
from peasy.training.learner import GradientLearner
from peasy.training.objective import NextToken
from peasy.training.optimizer import AdamWConfig, MuonConfig, Optimizer

KINDS = ("gpt-tiny", "rnn-tiny", "cnn-tiny", "words-tiny")


def measured(name: str, config) -> tuple[int, int, int, ModelSizes]:
    """Bytes of weights, gradients and optimizer state after one real step, and the estimate."""
    model = build(preset(name, vocab_size=40), seed=1).train()
    optimizer = Optimizer(model, config)
    ids = torch.arange(24).reshape(2, 12)
    GradientLearner(model, NextToken(), optimizer, seed=0).step([{"ids": ids, "targets": ids}], 1, 0.1)
    gradients = sum(weight.grad.nbytes for weight in model.parameters() if weight.grad is not None)
    state = sum(tensor.nbytes for tensor in optimizer.state_dict().values())
    return sum(w.nbytes for w in model.parameters()), gradients, state, ModelSizes.of(model, config)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("config", [AdamWConfig(), MuonConfig()], ids=["adamw", "muon"])
def test_estimate_equals_allocation(name, config):
    weights, gradients, state, sizes = measured(name, config)
    assert (sizes.weight_bytes, sizes.weight_bytes, sizes.optimizer_bytes) == (weights, gradients, state)


def test_meta_model_has_the_same_sizes():
    _, _, _, sizes = measured("gpt-tiny", MuonConfig())
    assert ModelSizes.of(build(preset("gpt-tiny", vocab_size=40), seed=None), MuonConfig()) == sizes


@pytest.fixture
def gpt2():
    sizes = ModelSizes.of(build(preset("gpt2"), seed=None), AdamWConfig())
    return TrainingEstimate(sizes, Hardware(8, 312e12, 80e9, 300e9), batch_size=8, seq_len=1024)


def test_gpt2_matches_manual_calculation(gpt2):
    n = 124_439_808
    assert gpt2.sizes.parameters == n
    assert gpt2.state_bytes == pytest.approx(16 * n, rel=1e-5)
    assert gpt2.kv_cache_bytes == 2 * 12 * 768 * 2 * 1024
    assert gpt2.activation_bytes == 34 * 8192 * 768 * 12 + 6 * 8192 * 50257
    assert gpt2.compute_seconds == pytest.approx(8192 * (6 * n + 6 * 12 * 768 * 1024) / (312e12 * 0.4))
    assert gpt2.communication_seconds("ddp") == pytest.approx(2 * 7 / 8 * 4 * n / 300e9)
    assert gpt2.tokens_per_day("ddp") == pytest.approx(8 * 8192 * 86400 / gpt2.compute_seconds)


def test_fsdp_needs_less_memory_and_more_communication(gpt2):
    assert gpt2.bytes_per_device("fsdp") < gpt2.bytes_per_device("ddp")
    assert gpt2.communication_seconds("fsdp") > gpt2.communication_seconds("ddp")
    single = TrainingEstimate(gpt2.sizes, Hardware(1, 312e12, 80e9, 300e9), 8, 1024)
    assert single.communication_seconds("ddp") == single.communication_seconds("fsdp") == 0


def test_gqa_shrinks_the_kv_cache():
    grouped = preset("gpt-tiny", stack={"attention": {"num_heads": 2, "num_kv_heads": 1}})
    whole = ModelSizes.of(build(preset("gpt-tiny"), seed=None), AdamWConfig())
    assert 2 * ModelSizes.of(build(grouped, seed=None), AdamWConfig()).kv_per_token == whole.kv_per_token
    assert ModelSizes.of(build(preset("rnn-tiny"), seed=None), AdamWConfig()).kv_per_token == 0


def test_token_shift_is_cached_and_lookup_tables_cost_no_flops():
    plain = preset("gpt-tiny")
    more = preset("gpt-tiny", stack={"token_shift": True}, embedding={"max_ngram": 2, "ngram_buckets": 100})
    before, after = (ModelSizes.of(build(config, seed=None), AdamWConfig()) for config in (plain, more))
    assert after.kv_per_token == before.kv_per_token + plain.stack.num_layers * plain.d_model
    assert after.lookup_parameters == after.parameters - before.parameters == 100 * plain.d_model
    hardware = Hardware(1, 1e12, 1e9, 1e9)
    assert (
        TrainingEstimate(after, hardware, 4, 64).flops_per_token
        == TrainingEstimate(before, hardware, 4, 64).flops_per_token
    )


@pytest.mark.parametrize("wrong", [{"accelerators": 0}, {"flops": 0.0}, {"memory": -1.0}, {"mfu": 1.5}])
def test_invalid_hardware_is_rejected(wrong):
    with pytest.raises(InvalidInput):
        Hardware(**{"accelerators": 1, "flops": 1.0, "memory": 1.0, "bandwidth": 1.0} | wrong)
