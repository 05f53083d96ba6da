"""Position-wise feed-forward network (MLP), plain or gated."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import config as nn_config
from peasy.nn.attention import LinearFactory, fuse_linears
from peasy.nn.forward_context import ForwardContext
from peasy.nn.functional import ReluSquaredFn, use_fused_backward
from peasy.nn.module_path import ModulePath


def relu_squared(x: Tensor) -> Tensor:
    """Return relu(x)²."""
    return ReluSquaredFn.apply(x) if use_fused_backward(x) else torch.square(functional.relu(x))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "relu-squared": relu_squared,
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
}


class FeedForward(nn.Module):
    """MLP: up projection, activation (or gate), down projection."""

    def __init__(self, d_model: int, settings: nn_config.FeedForwardConfig, path: ModulePath) -> None:
        super().__init__()
        self.path, self.settings = path, settings
        self.gate_up_proj: nn.Module | None = None
        self.activation = ACTIVATIONS[settings.activation]
        self.up = nn.Linear(d_model, settings.d_ff, bias=settings.bias)
        gated = isinstance(settings, nn_config.GatedMLPConfig)
        self.gate = nn.Linear(d_model, settings.d_ff, bias=settings.bias) if gated else None
        self.down = nn.Linear(settings.d_ff, d_model, bias=settings.bias)

    def summary(self) -> str:
        """Return a one-line summary."""
        gated = "gated " if isinstance(self.settings, nn_config.GatedMLPConfig) else ""
        return f"width {self.settings.d_ff}, {gated}{self.settings.activation}"

    def forward(self, x: Tensor, ctx: ForwardContext) -> Tensor:
        """Map `[batch, time, d_model]` to the same shape."""
        if self.gate_up_proj is not None:
            gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
            inner = self.activation(gate) * up
        else:
            inner = self.activation(self.up(x)) if self.gate is None else self.activation(self.gate(x)) * self.up(x)
        return self.down(ctx.edit_and_record(self.path, "activation", inner))

    def fuse_projections(self, make_linear: LinearFactory) -> None:
        """Replace gate and up projection by one linear layer, for decoding; without a gate, nothing is done."""
        if self.gate is not None:
            self.gate_up_proj = fuse_linears(make_linear, self.gate, self.up)
            del self.gate, self.up
