"""Custom autograd functions: same values and gradients as the plain code, and used only in training."""

import pytest
import torch
from torch.nn import functional

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn import fused_autograd
from peasy.nn.feedforward import relu_squared
from peasy.nn.position import apply_rope


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def angles(time: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.linspace(0, 3, time * half, dtype=torch.float64).view(1, 1, time, half)
    return angle.cos(), angle.sin()


CASES = {
    "relu-squared": (fused_autograd.ReluSquaredFn.apply, [drawn(3, 5)]),
    "root-normed": (lambda x, w: fused_autograd.RMSNormFn.apply(x, w, 1e-6), [drawn(2, 3, 5), drawn(5, seed=1)]),
    "turned": (lambda x: fused_autograd.RotaryFn.apply(x, *angles(4, 3)), [drawn(2, 2, 4, 6)]),
    "turned-heads-apart": (
        lambda x: fused_autograd.RotaryFn.apply(x.transpose(1, 2), *angles(4, 3)),
        [drawn(2, 4, 2, 6)],
    ),
    "shifted": (fused_autograd.TokenShiftFn.apply, [drawn(2, 4, 6)]),
    "shifted-odd": (fused_autograd.TokenShiftFn.apply, [drawn(2, 3, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_backward_matches_numerical_gradient(name):
    function, arrays = CASES[name]
    assert torch.autograd.gradcheck(function, arrays)


@pytest.mark.parametrize("name", CASES)
def test_second_derivative_is_refused(name):
    function, arrays = CASES[name]
    (slope,) = torch.autograd.grad(function(*arrays).square().sum(), arrays[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def plain(monkeypatch) -> None:
    for room in ("feedforward", "norm", "position", "shift"):
        monkeypatch.setattr(f"peasy.nn.{room}.learns", lambda *arrays: False)


def slopes(model, ids):
    model.zero_grad()
    model.train()
    functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("shift", [False, True], ids=["plain-blocks", "shift"])
def test_model_gradients_match_plain_autograd(shift, monkeypatch):
    model = build(preset("gpt-tiny", vocabulary=30, d_model=32, stack={"shift": shift}), seed=2).double()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    own = slopes(model, ids)
    plain(monkeypatch)
    torch.testing.assert_close(own, slopes(model, ids), rtol=1e-9, atol=1e-12)


def test_wrong_gradient_is_detected(monkeypatch):
    model = build(preset("gpt-tiny", vocabulary=30, d_model=32), seed=2).double()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    own = slopes(model, ids)
    monkeypatch.setattr(fused_autograd.ReluSquaredFn, "backward", staticmethod(lambda ctx, gradient: gradient))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(own, slopes(model, ids), rtol=1e-9, atol=1e-12)


def test_used_only_in_training():
    x = drawn(2, 3)
    assert fused_autograd.use_fused_backward(x)
    assert not fused_autograd.use_fused_backward(x.detach())
    assert not fused_autograd.use_fused_backward(x.detach().to("meta").requires_grad_())
    with torch.no_grad():
        assert not fused_autograd.use_fused_backward(x)
        assert relu_squared(x).grad_fn is None
    assert type(relu_squared(x).grad_fn).__name__ == "ReluSquaredBackward"
    assert type(apply_rope(drawn(1, 1, 4, 6), angles(4, 3)).grad_fn).__name__ == "TurnedBackward"
