"""Recurrent layers: LSTM or GRU with padding, additive attention, and the decoding state."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peasy.formula import Additive, AttentionSteps
from peasy.formula.attention import attend
from peasy.nn.functional import HAS_BFLOAT16
from peasy.nn.kv_cache import ForwardOnlyState

_HiddenState = tuple[Tensor, ...]
"""(hidden,) of a GRU or (hidden, cell) of an LSTM, each `[layer, batch, width]`."""


@dataclass(eq=False)
class RecurrentState(ForwardOnlyState):
    """Decoding state of a recurrent model: hidden state, and for a translator the encoder output it attends to."""

    hidden_state: _HiddenState | None = None
    length: int = 0
    encoder_output: Tensor | None = None
    encoder_padding_mask: Tensor | None = None


class Recurrent(nn.Module):
    """LSTM or GRU over `[batch, time, width]`; padding on either side is skipped."""

    def __init__(
        self, cell: str, d_input: int, d_state: int, layers: int, dropout: float, bidirectional: bool = False
    ) -> None:
        super().__init__()
        cell_class: Any = nn.LSTM if cell == "lstm" else nn.GRU
        options = {"batch_first": True, "dropout": dropout if layers > 1 else 0.0, "bidirectional": bidirectional}
        self.cell = cell_class(d_input, d_state, layers, **options)

    def forward(
        self, x: Tensor, state: _HiddenState | None = None, padding_mask: Tensor | None = None
    ) -> tuple[Tensor, _HiddenState]:
        """Return the top layer's outputs and the state after the last token that is not padding."""
        if padding_mask is None:
            outputs, new_state = self._run_cell(x, state)
            return outputs, _from_torch_state(new_state)
        order = (~padding_mask).int().argsort(dim=1, stable=True)  # tokens first, in their order, then padding
        index = order[:, :, None]
        lengths = padding_mask.sum(dim=1)
        left_aligned = x.gather(1, index.expand_as(x))
        packed = pack_padded_sequence(left_aligned, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, new_state = self._run_cell(packed, state)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        restored = torch.zeros_like(outputs).scatter(1, index.expand_as(outputs), outputs)
        old_state = state or tuple(torch.zeros_like(tensor) for tensor in _from_torch_state(new_state))
        not_empty = (lengths > 0)[None, :, None]
        pairs = zip(_from_torch_state(new_state), old_state, strict=True)
        return restored, tuple(torch.where(not_empty, new, old) for new, old in pairs)

    def _run_cell(self, x: Any, state: _HiddenState | None) -> tuple[Any, object]:
        """Run the cell; without bfloat16 instructions in float32, as oneDNN has no bfloat16 LSTM for such a CPU."""
        if not torch.is_autocast_enabled("cpu") or HAS_BFLOAT16:
            return self.cell(x, _to_torch_state(state))
        with torch.autocast("cpu", enabled=False):
            return self.cell(
                x.float(), _to_torch_state(None if state is None else tuple(part.float() for part in state))
            )

    def summary(self) -> str:
        """Return a one-line summary."""
        cell = self.cell
        direction = ", bidirectional" if cell.bidirectional else ""
        layers = f"{cell.num_layers} layer{'' if cell.num_layers == 1 else 's'}"
        return f"{type(cell).__name__}, {layers} of width {cell.hidden_size}{direction}"


def _to_torch_state(state: _HiddenState | None) -> object:
    return None if state is None else state[0] if len(state) == 1 else state


def _from_torch_state(state: object) -> _HiddenState:
    return state if isinstance(state, tuple) else (state,)


class AdditiveAttention(nn.Module):
    """Additive (Bahdanau) attention of 2015, one head: scores are v · tanh(W q + U k), computed by the formula."""

    def __init__(self, d_query: int, d_key: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(d_query, d_attention))
        self.key = nn.Parameter(torch.empty(d_key, d_attention))
        self.sum = nn.Parameter(torch.empty(d_attention))

    def forward(
        self, query: Tensor, source: Tensor, padding_mask: Tensor | None, uniform: bool = False
    ) -> AttentionSteps:
        """Attend from `query` `[batch, 1, query, d]` to `source` `[batch, key, d]`.

        `padding_mask` is `[batch, key]`, True = token; `uniform` gives every key the same weight.
        """
        keys = source[:, None]
        mask = None if padding_mask is None else padding_mask[:, None, None]
        scoring = Additive(self.query, self.key, self.sum * 0 if uniform else self.sum)
        return attend(query, keys, keys, mask=mask, scoring=scoring)

    def project(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return W q and U k in float32."""
        return query.float() @ self.query.float(), key.float() @ self.key.float()

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"1 head, v · tanh(W q + U k), width {len(self.sum)}"
