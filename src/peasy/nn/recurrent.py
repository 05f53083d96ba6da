"""Recurrent cells: a text is read one token after the other, through a state."""

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
    """The state after what was read, and for a translator what it looks at."""

    state: State | None = None
    length: int = 0
    source: Tensor | None = None
    source_real: Tensor | None = None

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was."""
        self.state = None if self.state is None else tuple(part[:, rows] for part in self.state)
        self.source = None if self.source is None else self.source[rows]
        self.source_real = None if self.source_real is None else self.source_real[rows]

    def crop(self, length: int) -> None:
        """A state cannot be taken apart again."""
        if length < self.length:
            raise InvalidInput("A recurrent state cannot go back.", hint="Read the shorter text from its start.")

    def fork(self) -> "RecurrentMemory":
        """The same memory once more, which goes its own way from here."""
        return replace(self)


class Recurrent(nn.Module):
    """LSTM or GRU over `[batch, time, width]`, with padding on either side left out."""

    def __init__(self, cell: str, d_input: int, d_state: int, layers: int, dropout: float, both: bool = False) -> None:
        super().__init__()
        kind: Any = nn.LSTM if cell == "lstm" else nn.GRU
        between = dropout if layers > 1 else 0.0
        self.cell = kind(d_input, d_state, layers, batch_first=True, dropout=between, bidirectional=both)

    def forward(self, x: Tensor, state: State | None = None, real: Tensor | None = None) -> tuple[Tensor, State]:
        """The top layer's vectors and the state after the last real token."""
        if real is None:
            found, after = self.cell(x, _given(state))
            return found, _taken(after)
        return self._padded(x, state, real)

    def _padded(self, x: Tensor, state: State | None, real: Tensor) -> tuple[Tensor, State]:
        order = (~real).int().argsort(dim=1, stable=True)  # real tokens first, in their order
        index = order[:, :, None]
        lengths = real.sum(dim=1)
        first = x.gather(1, index.expand_as(x))
        packed = pack_padded_sequence(first, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        found, after = self.cell(packed, _given(state))
        found, _ = pad_packed_sequence(found, batch_first=True, total_length=x.shape[1])
        back = torch.zeros_like(found).scatter(1, index.expand_as(found), found)
        old = state or tuple(torch.zeros_like(part) for part in _taken(after))
        some = (lengths > 0)[None, :, None]
        return back, tuple(torch.where(some, new, was) for new, was in zip(_taken(after), old, strict=True))

    def says(self) -> str:
        """What it is, in words."""
        cell = self.cell
        ways = ", both ways" if cell.bidirectional else ""
        return f"{type(cell).__name__}, {cell.num_layers} x {cell.hidden_size} wide{ways}"


def _given(state: State | None) -> Any:
    return None if state is None else state[0] if len(state) == 1 else state


def _taken(state: Any) -> State:
    return state if isinstance(state, tuple) else (state,)
