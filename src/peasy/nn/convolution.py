"""Gated convolutions that only look back: all places at once, each over a few places before it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.nn.tap import Place, Tap, show


@dataclass(eq=False)
class ConvolutionMemory:
    """The last inputs of every layer: all that the next token can see."""

    inputs: list[Tensor | None]
    length: int = 0

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was."""
        self.inputs = [None if each is None else each[rows] for each in self.inputs]

    def crop(self, length: int) -> None:
        """Earlier inputs are gone."""
        if length < self.length:
            raise InvalidInput("This memory cannot go back.", hint="Read the shorter text from its start.")

    def fork(self) -> "ConvolutionMemory":
        """The same memory once more, which goes its own way from here."""
        return replace(self, inputs=list(self.inputs))


class GatedConvolution(nn.Module):
    """x + (a ⊙ σ(b)), where a and b see `width` places, `spread` apart, the last of them the own."""

    def __init__(self, d_model: int, width: int, spread: int, place: Place, dropout: float) -> None:
        super().__init__()
        self.place, self.reach = place, (width - 1) * spread
        self.norm = nn.LayerNorm(d_model)
        self.mix = nn.Conv1d(d_model, 2 * d_model, width, dilation=spread)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, before: Tensor | None, real: Tensor | None, tap: Tap | None) -> tuple[Tensor, Tensor]:
        """`[batch, time, d_model]` to the same, and the inputs the next call needs as `before`."""
        read = self.norm(x)
        if real is not None:  # padding looks like the emptiness before a text
            read = read.masked_fill(~real[:, :, None], 0)
        show(tap, self.place, "normed", read)
        if before is None:
            before = read.new_zeros(len(read), self.reach, read.shape[2])
        read = torch.cat([before, read], dim=1)
        value, gate = self.mix(read.transpose(1, 2)).transpose(1, 2).chunk(2, dim=-1)
        found = value * torch.sigmoid(gate)
        show(tap, self.place, "output", found)
        return x + self.dropout(found), read[:, read.shape[1] - self.reach :]

    def says(self) -> str:
        """What it is, in words."""
        return f"sees {self.mix.kernel_size[0]} places, {self.mix.dilation[0]} apart"
