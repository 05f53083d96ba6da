"""Position-wise feed-forward network (MLP), plain or gated."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import part
from peasy.nn.backward import ReluSquared, learns
from peasy.nn.scene import Scene
from peasy.nn.tap import Place


def relu_squared(x: Tensor) -> Tensor:
    """Return relu(x)²."""
    return ReluSquared.apply(x) if learns(x) else torch.square(functional.relu(x))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu-squared": relu_squared,
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}


class FeedForward(nn.Module):
    """MLP: up projection, activation (or gate), down projection.

    For decoding, `gate_up_proj` may hold gate and up as one packed linear layer.
    """

    def __init__(self, d_model: int, settings: part.FeedForward, place: Place) -> None:
        super().__init__()
        self.place, self.settings = place, settings
        self.joined: nn.Module | None = None
        self.bend = ACTIVATIONS[settings.activation]
        self.up = nn.Linear(d_model, settings.width, bias=settings.bias)
        self.gate = nn.Linear(d_model, settings.width, bias=settings.bias) if isinstance(settings, part.Gated) else None
        self.down = nn.Linear(settings.width, d_model, bias=settings.bias)

    def says(self) -> str:
        """Return a one-line summary."""
        kind = f"gated {self.settings.activation}" if self.gate is not None else self.settings.activation
        return f"width {self.settings.width}, {kind}"

    def forward(self, x: Tensor, scene: Scene) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        if self.joined is not None:
            gate, up = self.joined(x).chunk(2, dim=-1)
            inner = self.bend(gate) * up
        else:
            inner = self.bend(self.up(x)) if self.gate is None else self.bend(self.gate(x)) * self.up(x)
        scene.show(self.place, "activation", inner)
        return self.down(inner)
