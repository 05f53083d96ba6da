"""Causal gated convolutions, and their decoding state."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.nn.tap import Place, Tap, show


@dataclass(eq=False)
class ConvolutionMemory:
    """Decoding state of a convolutional model: the last inputs of every layer, as far as the next token needs them."""

    inputs: list[Tensor | None]
    length: int = 0

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""
        self.inputs = [None if x is None else x[rows] for x in self.inputs]

    def crop(self, length: int) -> None:
        """Raise if tokens would have to be dropped: earlier inputs are not kept."""
        if length < self.length:
            raise InvalidInput("This state cannot be cropped.", hint="Run the shorter sequence from its start.")

    def fork(self) -> "ConvolutionMemory":
        """Return an independent copy."""
        return replace(self, inputs=list(self.inputs))


class GatedConvolution(nn.Module):
    """Causal gated convolution with residual: x + a ⊙ σ(b)."""

    def __init__(self, d_model: int, width: int, spread: int, place: Place, dropout: float) -> None:
        super().__init__()
        self.place, self.reach = place, (width - 1) * spread
        self.norm = nn.LayerNorm(d_model)
        self.mix = nn.Conv1d(d_model, 2 * d_model, width, dilation=spread)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, before: Tensor | None, real: Tensor | None, tap: Tap | None) -> tuple[Tensor, Tensor]:
        """Return the output `[batch, time, d_model]`, and the inputs that the next call needs as `left_context`."""
        inputs = self.norm(x)
        if real is not None:  # padding is zero, like the positions before the start of a sequence
            inputs = inputs.masked_fill(~real[:, :, None], 0)
        show(tap, self.place, "normed", inputs)
        if before is None:
            before = inputs.new_zeros(len(inputs), self.reach, inputs.shape[2])
        inputs = torch.cat([before, inputs], dim=1)
        value, gate = self.mix(inputs.transpose(1, 2)).transpose(1, 2).chunk(2, dim=-1)
        output = value * torch.sigmoid(gate)
        show(tap, self.place, "output", output)
        return x + self.dropout(output), inputs[:, inputs.shape[1] - self.reach :]

    def says(self) -> str:
        """Return a one-line summary."""
        return f"kernel size {self.mix.kernel_size[0]}, dilation {self.mix.dilation[0]}"
