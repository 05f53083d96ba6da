"""Optimizer: which weights use Muon or AdamW, bit-exact restoring; Muon compared with torch.optim.Muon and the SVD."""

import pytest
import torch
from torch import nn

from peasy.errors import InvalidInput
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.training.optimizer import AdamWConfig, MuonConfig, MuonOptimizer, Optimizer, linear_weights, orthogonalise


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


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_updates_are_nearly_orthogonal():
    matrices = drawn(3, 16, 40)
    orthogonal = orthogonalise(matrices, ns_steps=5)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    inside = left.mT @ orthogonal @ right.mT  # in the basis of the singular vectors it is diagonal
    off = inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-4
    assert (inside.diagonal(dim1=-2, dim2=-1) - 1).abs().max() < 0.5


def test_batched_equals_one_by_one():
    matrices = drawn(4, 8, 12)
    together = orthogonalise(matrices)
    alone = torch.stack([orthogonalise(matrix[None])[0] for matrix in matrices])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("small", [1.0, 1e-2, 1e-4], ids=str)
def test_gram_iteration_equals_plain_iteration(small, monkeypatch):
    """Also where some singular values are small, or zero."""
    left, _, right = torch.linalg.svd(drawn(3, 24, 96), full_matrices=False)
    values = torch.linspace(1, small, 24)
    values[-1] = 0.0
    matrices = left * values @ right
    short = orthogonalise(matrices)
    monkeypatch.setattr("peasy.training.optimizer._GRAM_ASPECT_RATIO", 1000)
    monkeypatch.setattr("peasy.training.optimizer._gram_newton_schulz", lambda *_: pytest.fail("taken"))
    torch.testing.assert_close(short, orthogonalise(matrices), rtol=0, atol=2e-3)
    torch.testing.assert_close(short.double(), orthogonalise(matrices.double(), dtype=torch.float64), rtol=0, atol=2e-3)


@pytest.mark.parametrize("columns", [4, 12])
def test_zero_matrix_gives_no_nan(columns):
    assert not orthogonalise(torch.zeros(1, 4, columns)).isnan().any()


@pytest.mark.parametrize("shapes", [[(24, 24), (24, 24)], [(16, 48), (48, 16), (16, 48)], [(10, 7), (7, 10), (5, 5)]])
def test_matches_torch_muon(shapes):
    ours = {f"m{i}": nn.Parameter(drawn(*shape, seed=i)) for i, shape in enumerate(shapes)}
    theirs = [nn.Parameter(weight.detach().clone()) for weight in ours.values()]
    muon = MuonOptimizer(ours, MuonConfig(momentum=0.95, weight_decay=0.1, ns_steps=5), torch.bfloat16)
    other = torch.optim.Muon(theirs, lr=0.02, momentum=0.95, weight_decay=0.1, ns_steps=5)
    for step in range(4):
        for i, (one, two) in enumerate(zip(ours.values(), theirs, strict=True)):
            one.grad = drawn(*one.shape, seed=100 * step + i)
            two.grad = one.grad.clone()
        muon.step(0.02)
        other.step()
    for one, two in zip(ours.values(), theirs, strict=True):
        moved = (two - one).norm() / (0.02 * 4 * min(one.shape) ** 0.5)
        assert moved < 0.02  # relative: both round to bfloat16, in different order


def test_other_momentum_gives_other_weights():
    weight = {"m": nn.Parameter(drawn(8, 8))}
    other = nn.Parameter(weight["m"].detach().clone())
    muon = MuonOptimizer(weight, MuonConfig(momentum=0.5, weight_decay=0.0, ns_steps=5), torch.float32)
    reference = torch.optim.Muon([other], lr=0.02, momentum=0.95, weight_decay=0.0)
    for step in range(3):
        weight["m"].grad = drawn(8, 8, seed=step)
        other.grad = weight["m"].grad.clone()
        muon.step(0.02)
        reference.step()
    assert (other - weight["m"]).norm() > 0.01


def test_momentum_is_saved_in_matrix_orientation():
    matrices = {"wide": nn.Parameter(drawn(4, 9)), "tall": nn.Parameter(drawn(9, 4))}
    first = MuonOptimizer(matrices, MuonConfig(momentum=0.9, weight_decay=0.0, ns_steps=3), torch.float32)
    for matrix in matrices.values():
        matrix.grad = drawn(*matrix.shape, seed=5)
    first.step(0.0)
    state = first.state_dict()
    assert {name: tuple(held.shape) for name, held in state.items()} == {"wide": (4, 9), "tall": (9, 4)}
    second = MuonOptimizer(matrices, MuonConfig(momentum=0.9, weight_decay=0.0, ns_steps=3), torch.float32)
    second.load_state_dict(state)
    torch.testing.assert_close(second.state_dict(), state, rtol=0, atol=0)
