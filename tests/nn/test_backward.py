"""Ways back written by hand: the numbers of the plain form, in both directions, and only where they are meant for."""

import pytest
import torch
from torch.nn import functional

from peasy.formula import attend
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn import attention, backward
from peasy.nn.feedforward import relu_squared
from peasy.nn.position import turn
from peasy.nn.sight import Visible
from peasy.nn.watch import Look


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


def angles(time: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.linspace(0, 3, time * half, dtype=torch.float64).view(1, 1, time, half)
    return angle.cos(), angle.sin()


CASES = {
    "relu-squared": (backward.ReluSquared.apply, [drawn(3, 5)]),
    "root-normed": (lambda x, w: backward.RootNormed.apply(x, w, 1e-6), [drawn(2, 3, 5), drawn(5, seed=1)]),
    "turned": (lambda x: backward.Turned.apply(x, *angles(4, 3)), [drawn(2, 2, 4, 6)]),
    "turned-heads-apart": (lambda x: backward.Turned.apply(x.transpose(1, 2), *angles(4, 3)), [drawn(2, 4, 2, 6)]),
    "shifted": (backward.Shifted.apply, [drawn(2, 4, 6)]),
    "shifted-odd": (backward.Shifted.apply, [drawn(2, 3, 5)]),
    "attention": (
        lambda q, k, v: backward.ShortAttention.apply(q, k, v, 0.4),
        [drawn(2, 2, 5, 3, seed=seed) for seed in range(3)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_way_back_is_the_slope(name):
    function, arrays = CASES[name]
    assert torch.autograd.gradcheck(function, arrays)


@pytest.mark.parametrize("name", CASES)
def test_nobody_is_given_a_slope_of_a_slope_that_is_wrong(name):
    function, arrays = CASES[name]
    (slope,) = torch.autograd.grad(function(*arrays).square().sum(), arrays[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def both_ways(function, *arrays):
    found = function(*arrays)
    weight = drawn(*found.shape, seed=9, dtype=found.dtype).detach()
    return found, torch.autograd.grad((found * weight).sum(), arrays)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_short_attention_is_the_fused_kernel_and_the_formula(dtype):
    arrays = [drawn(2, 3, 7, 4, seed=seed, dtype=dtype) for seed in range(3)]
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    own = both_ways(lambda q, k, v: backward.ShortAttention.apply(q, k, v, 0.3), *arrays)
    fused = both_ways(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), *arrays
    )
    formula = both_ways(lambda q, k, v: attend(q, k, v, causal=True, scale=0.3).context, *arrays)
    torch.testing.assert_close(own, fused, **close)
    torch.testing.assert_close(own, formula, **close)


def plain(monkeypatch) -> None:
    for room in ("attention", "feedforward", "norm", "position", "shift"):
        monkeypatch.setattr(f"peasy.nn.{room}.learns", lambda *arrays: False)


def slopes(model, ids):
    model.zero_grad()
    model.train()
    functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("shift", [False, True], ids=["plain-blocks", "shift"])
def test_a_whole_model_learns_the_same(shift, monkeypatch):
    model = build(preset("gpt-tiny", vocabulary=30, d_model=32, stack={"shift": shift}), seed=2).double()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    own = slopes(model, ids)
    plain(monkeypatch)
    torch.testing.assert_close(own, slopes(model, ids), rtol=1e-9, atol=1e-12)


def test_a_wrong_slope_would_be_seen(monkeypatch):
    model = build(preset("gpt-tiny", vocabulary=30, d_model=32), seed=2).double()
    ids = torch.randint(0, 30, (3, 12), generator=torch.Generator().manual_seed(1))
    own = slopes(model, ids)
    monkeypatch.setattr(backward.ReluSquared, "backward", staticmethod(lambda ctx, gradient: gradient))
    with pytest.raises(AssertionError):
        torch.testing.assert_close(own, slopes(model, ids), rtol=1e-9, atol=1e-12)


def test_only_who_learns_takes_it():
    x = drawn(2, 3)
    assert backward.learns(x)
    assert not backward.learns(x.detach())
    assert not backward.learns(x.detach().to("meta").requires_grad_())
    with torch.no_grad():
        assert not backward.learns(x)
        assert relu_squared(x).grad_fn is None
    assert type(relu_squared(x).grad_fn).__name__ == "ReluSquaredBackward"
    assert type(turn(drawn(1, 1, 4, 6), angles(4, 3)).grad_fn).__name__ == "TurnedBackward"


@pytest.mark.parametrize(
    "look",
    [
        Look(*[drawn(1, 2, backward.LONGEST + 1, 4)] * 3, Visible(causal=True), 0.5),
        Look(*[drawn(1, 2, 4, 4)] * 3, Visible(), 0.5),
        Look(*[drawn(1, 2, 4, 4)] * 3, Visible(torch.ones(4, 4, dtype=torch.bool).tril()), 0.5),
        Look(*[drawn(1, 2, 4, 4)] * 3, Visible(bias=torch.zeros(1, 2, 4, 4), causal=True), 0.5),
        Look(drawn(1, 4, 4, 4), *[drawn(1, 2, 4, 4)] * 2, Visible(causal=True), 0.5),
        Look(*[drawn(1, 2, 4, 4, dtype=torch.bfloat16)] * 3, Visible(causal=True), 0.5),
    ],
    ids=["long", "both-ways", "mask", "bias", "grouped", "bfloat16"],
)
def test_other_attention_stays_with_the_kernel(look, monkeypatch):
    monkeypatch.setattr(backward.ShortAttention, "apply", lambda *_: pytest.fail("taken"))
    assert attention.attend_fused(look).shape == look.query.shape
