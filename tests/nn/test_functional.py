"""Custom autograd functions: same values and gradients as the plain code, and used only in training."""

import pytest
import torch
from torch.nn import functional

from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn import functional as peasy_functional
from peasy.nn.feedforward import relu_squared
from peasy.nn.position import apply_rope


def random_tensor(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def angles(time: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.linspace(0, 3, time * half, dtype=torch.float64).view(1, 1, time, half)
    return angle.cos(), angle.sin()


CASES = {
    "relu-squared": (peasy_functional.ReluSquaredFn.apply, [random_tensor(3, 5)]),
    "rms-norm": (
        lambda x, w: peasy_functional.RMSNormFn.apply(x, w, 1e-6),
        [random_tensor(2, 3, 5), random_tensor(5, seed=1)],
    ),
    "rotary": (lambda x: peasy_functional.RotaryFn.apply(x, *angles(4, 3)), [random_tensor(2, 2, 4, 6)]),
    "rotary-transposed": (
        lambda x: peasy_functional.RotaryFn.apply(x.transpose(1, 2), *angles(4, 3)),
        [random_tensor(2, 4, 2, 6)],
    ),
    "token-shift": (peasy_functional.TokenShiftFn.apply, [random_tensor(2, 4, 6)]),
    "token-shift-odd": (peasy_functional.TokenShiftFn.apply, [random_tensor(2, 3, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_backward_matches_numerical_gradient(name):
    function, arrays = CASES[name]
    assert torch.autograd.gradcheck(function, arrays)


@pytest.mark.parametrize("name", CASES)
def test_second_derivative_is_refused(name):
    function, arrays = CASES[name]
    (gradient,) = torch.autograd.grad(function(*arrays).square().sum(), arrays[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def disable_fused_backward(monkeypatch) -> None:
    for module in ("feedforward", "functional", "position", "embedding"):
        monkeypatch.setattr(f"peasy.nn.{module}.use_fused_backward", lambda *arrays: False)


def gradients(model, ids):
    model.zero_grad()
    model.train()
    functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("token_shift", [False, True], ids=["no-token-shift", "token-shift"])
def test_model_gradients_match_plain_autograd(token_shift, monkeypatch):
    model = build(preset("gpt-tiny", vocab_size=30, d_model=32, stack={"token_shift": token_shift}), seed=2).double()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    fused = gradients(model, ids)
    disable_fused_backward(monkeypatch)
    torch.testing.assert_close(fused, gradients(model, ids), rtol=1e-9, atol=1e-12)


def test_wrong_gradient_is_detected(monkeypatch):
    model = build(preset("gpt-tiny", vocab_size=30, d_model=32), seed=2).double()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    fused = gradients(model, ids)
    monkeypatch.setattr(peasy_functional.ReluSquaredFn, "backward", staticmethod(lambda ctx, gradient: gradient))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(fused, gradients(model, ids), rtol=1e-9, atol=1e-12)


def test_used_only_in_training():
    x = random_tensor(2, 3)
    assert peasy_functional.use_fused_backward(x)
    assert not peasy_functional.use_fused_backward(x.detach())
    assert not peasy_functional.use_fused_backward(x.detach().to("meta").requires_grad_())
    with torch.no_grad():
        assert not peasy_functional.use_fused_backward(x)
        assert relu_squared(x).grad_fn is None
    assert type(relu_squared(x).grad_fn).__name__ == "ReluSquaredFnBackward"
    assert type(apply_rope(random_tensor(1, 1, 4, 6), angles(4, 3)).grad_fn).__name__ == "RotaryFnBackward"
