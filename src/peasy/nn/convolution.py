"""Causal gated convolutions, and their decoding state."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from peasy.nn.kv_cache import ForwardOnlyState
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import Tap, record_step


@dataclass(eq=False)
class ConvolutionState(ForwardOnlyState):
    """Decoding state of a convolutional model: the last inputs of every layer, as far as the next token needs them."""

    layer_inputs: list[Tensor | None]
    length: int = 0

    def fork(self) -> "ConvolutionState":
        """Return an independent copy."""
        return replace(self, layer_inputs=list(self.layer_inputs))


class GatedConvolution(nn.Module):
    """Causal gated convolution with residual: x + a ⊙ σ(b)."""

    def __init__(self, d_model: int, kernel_size: int, dilation: int, path: ModulePath, dropout: float) -> None:
        super().__init__()
        self.path, self.left_padding = path, (kernel_size - 1) * dilation
        self.norm = nn.LayerNorm(d_model)
        self.mix = nn.Conv1d(d_model, 2 * d_model, kernel_size, dilation=dilation)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, left_context: Tensor | None, padding_mask: Tensor | None, tap: Tap | None
    ) -> tuple[Tensor, Tensor]:
        """Return the output `[batch, time, d_model]`, and the inputs that the next call needs as `left_context`."""
        inputs = self.norm(x)
        if padding_mask is not None:  # padding is zero, like the positions before the start of a sequence
            inputs = inputs.masked_fill(~padding_mask[:, :, None], 0)
        record_step(tap, self.path, "normed", inputs)
        if left_context is None:
            left_context = inputs.new_zeros(len(inputs), self.left_padding, inputs.shape[2])
        inputs = torch.cat([left_context, inputs], dim=1)
        value, gate = self.mix(inputs.transpose(1, 2)).transpose(1, 2).chunk(2, dim=-1)
        output = value * torch.sigmoid(gate)
        record_step(tap, self.path, "output", output)
        return x + self.dropout(output), inputs[:, inputs.shape[1] - self.left_padding :]

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"kernel size {self.mix.kernel_size[0]}, dilation {self.mix.dilation[0]}"
