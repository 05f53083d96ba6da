"""Recurrent layers: LSTM or GRU with padding, and their decoding state."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peasy.errors import InvalidInput

State = tuple[Tensor, ...]
"""(hidden,) of a GRU or (hidden, cell) of an LSTM, each `[layer, batch, width]`."""


@dataclass(eq=False)
class RecurrentMemory:
    """Decoding state of a recurrent model: hidden state, and for a translator the encoder output it attends to."""

    state: State | None = None
    length: int = 0
    source: Tensor | None = None
    source_real: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""
        self.state = None if self.state is None else tuple(tensor[:, rows] for tensor in self.state)
        self.source = None if self.source is None else self.source[rows]
        self.source_real = None if self.source_real is None else self.source_real[rows]

    def crop(self, length: int) -> None:
        """Raise if tokens would have to be dropped: a recurrent state cannot be rolled back."""
        if length < self.length:
            raise InvalidInput("A recurrent state cannot be cropped.", hint="Run the shorter sequence from its start.")

    def fork(self) -> "RecurrentMemory":
        """Return an independent copy."""
        return replace(self)


class Recurrent(nn.Module):
    """LSTM or GRU over `[batch, time, width]`; padding on either side is skipped."""

    def __init__(self, cell: str, d_input: int, d_state: int, layers: int, dropout: float, both: bool = False) -> None:
        super().__init__()
        cell_class: Any = nn.LSTM if cell == "lstm" else nn.GRU
        layer_dropout = dropout if layers > 1 else 0.0
        self.cell = cell_class(d_input, d_state, layers, batch_first=True, dropout=layer_dropout, bidirectional=both)

    def forward(self, x: Tensor, state: State | None = None, real: Tensor | None = None) -> tuple[Tensor, State]:
        """Return the top layer's outputs and the state after the last token that is not padding."""
        if real is None:
            outputs, new_state = self.cell(x, _given(state))
            return outputs, _taken(new_state)
        return self._padded(x, state, real)

    def _padded(self, x: Tensor, state: State | None, real: Tensor) -> tuple[Tensor, State]:
        order = (~real).int().argsort(dim=1, stable=True)  # tokens first, in their order, then padding
        index = order[:, :, None]
        lengths = real.sum(dim=1)
        left_aligned = x.gather(1, index.expand_as(x))
        packed = pack_padded_sequence(left_aligned, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, new_state = self.cell(packed, _given(state))
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        restored = torch.zeros_like(outputs).scatter(1, index.expand_as(outputs), outputs)
        old_state = state or tuple(torch.zeros_like(tensor) for tensor in _taken(new_state))
        not_empty = (lengths > 0)[None, :, None]
        pairs = zip(_taken(new_state), old_state, strict=True)
        return restored, tuple(torch.where(not_empty, new, old) for new, old in pairs)

    def says(self) -> str:
        """Return a one-line summary."""
        cell = self.cell
        direction = ", bidirectional" if cell.bidirectional else ""
        layers = f"{cell.num_layers} layer{'' if cell.num_layers == 1 else 's'}"
        return f"{type(cell).__name__}, {layers} of width {cell.hidden_size}{direction}"


def _given(state: State | None) -> Any:
    return None if state is None else state[0] if len(state) == 1 else state


def _taken(state: Any) -> State:
    return state if isinstance(state, tuple) else (state,)
