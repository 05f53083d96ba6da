"""Optimizer: which weights use Muon or AdamW, and bit-exact restoring."""

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.optimizer import AdamWConfig, MuonConfig, Optimizer, linear_weights


def model():
    return build(preset("gpt-tiny", vocab_size=20, d_model=16, stack={"num_layers": 1}), seed=1)


def train_steps(it, optimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        optimizer.zero_grad()
        ids = torch.randint(0, 20, (2, 6), generator=torch.Generator().manual_seed(step))
        it(ids).logsumexp(-1).sum().backward()
        optimizer.step(0.5)


@pytest.mark.parametrize("config", [AdamWConfig(lr=1e-2), MuonConfig()], ids=["adamw", "muon"])
def test_restored_optimizer_is_bit_exact(config):
    uninterrupted, interrupted = model(), model()
    one = Optimizer(uninterrupted, config)
    train_steps(uninterrupted, one, 4)
    two = Optimizer(interrupted, config)
    train_steps(interrupted, two, 2)
    again = model()
    again.load_state_dict(interrupted.state_dict())
    three = Optimizer(again, config)
    three.load_state_dict({name: tensor.clone() for name, tensor in two.state_dict().items()})
    train_steps(again, three, 2, first=2)
    assert all(torch.equal(uninterrupted.state_dict()[name], value) for name, value in again.state_dict().items())


def test_without_state_results_differ():
    uninterrupted, interrupted = model(), model()
    train_steps(uninterrupted, Optimizer(uninterrupted, MuonConfig()), 4)
    train_steps(interrupted, Optimizer(interrupted, MuonConfig()), 2)
    train_steps(interrupted, Optimizer(interrupted, MuonConfig()), 2, first=2)
    assert any(
        not torch.equal(uninterrupted.state_dict()[name], value) for name, value in interrupted.state_dict().items()
    )


def test_muon_updates_linear_weights_and_adamw_the_rest():
    it = model()
    optimizer = Optimizer(it, MuonConfig())
    train_steps(it, optimizer, 1)
    names = optimizer.state_dict()
    assert "muon.decoder.blocks.0.attention.query.weight" in names
    assert "adam.exp_avg.embedding.token.weight" in names
    moved = {name.split(".", 1)[1] for name in names if name.startswith("muon.")}
    moved |= {name.split(".", 2)[2] for name in names if name.startswith("adam.")}
    assert moved == {name for name, _ in it.named_parameters()}
    assert set(linear_weights(it)) == {name[5:] for name in names if name.startswith("muon.")}


def test_adamw_matches_torch():
    one, two = model(), model()
    ours = Optimizer(one, AdamWConfig(lr=1e-2, weight_decay=0.0))
    theirs = torch.optim.AdamW(two.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=False)
    for step in range(3):
        train_steps(one, ours, 1, first=step)
        two.zero_grad()
        ids = torch.randint(0, 20, (2, 6), generator=torch.Generator().manual_seed(step))
        two(ids).logsumexp(-1).sum().backward()
        theirs.step()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_are_clipped():
    it = model()
    optimizer = Optimizer(it, AdamWConfig())
    it(torch.ones(2, 4, dtype=torch.long)).square().sum().backward()
    before = optimizer.clip_grad_norm(None)
    assert float(optimizer.clip_grad_norm(float(before) / 4)) == pytest.approx(float(before))
    assert float(optimizer.clip_grad_norm(None)) == pytest.approx(float(before) / 4, rel=1e-3)


def test_state_of_another_model_is_rejected():
    with pytest.raises(InvalidInput, match="nothing for"):
        Optimizer(model(), MuonConfig()).load_state_dict({})


@pytest.mark.parametrize("wrong", [{"beta1": 1.0}, {"lr": -1.0}])
def test_invalid_settings_are_rejected(wrong):
    with pytest.raises(InvalidInput):
        AdamWConfig(**wrong)
