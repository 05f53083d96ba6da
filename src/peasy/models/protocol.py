"""Model base class and decoding-state protocol, shared by training, generation and inspection."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from peasy.models.config import ModelConfig
from peasy.models.describe import Box, describe
from peasy.nn.forward_context import InterventionLike
from peasy.nn.tap import Tap

Taps = Tap | Sequence[Tap | None] | None
Interventions = InterventionLike | Sequence[InterventionLike | None] | None
"""One for all sequences, or a list with one per sequence."""


class DecodeState(Protocol):
    """Decoding state of a model: a KV cache, a recurrent state, or the last tokens."""

    length: int

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""

    def fork(self) -> Self:
        """Return an independent copy."""


class Model(nn.Module):
    """Base class of all models: token ids in, logits out.

    `is_encoder_decoder`: it has an encoder for a source sequence (translation). `trained_by`: "gradient" or "counts".
    """

    config: ModelConfig
    is_encoder_decoder = False
    trained_by = "gradient"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def hidden(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: Any = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer, `[batch, time, d_model]`."""

    @abstractmethod
    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states."""

    @abstractmethod
    def new_state(self, batch: int = 1, *, capacity: int = 0, **source: Any) -> DecodeState:
        """Return an empty decoding state; an encoder-decoder model encodes its source here, once."""

    def forward(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: Any = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        last_only: bool = False,
        **source: Any,
    ) -> Tensor:
        """Return the logits of the next token after each position, `[batch, time, vocab_size]`.

        `ids` `[batch, time]`; `padding_mask` False = padding, on either side; `last_only`: only after the last token.
        """
        hidden = self.hidden(ids, padding_mask=padding_mask, cache=cache, tap=tap, intervention=intervention, **source)
        return self.logits(hidden[:, -1:] if last_only else hidden)

    def forward_varlen(
        self,
        sequences: Sequence[Sequence[int]],
        states: Sequence[Any],
        *,
        all_positions: bool = False,
        tap: Taps = None,
        intervention: Interventions = None,
    ) -> list[Tensor]:
        """Run new tokens of several sequences of any lengths without padding, each with its own decoding state.

        Returns the logits after each sequence's last token, `[vocab_size]`, or with `all_positions` after every token,
        `[time, vocab_size]`. Taps and interventions are one for all, or a list with one per sequence (None = none);
        each acts as if its sequence were alone. Invalid ids or lengths raise before any state has changed.
        """
        results = []
        taps, interventions = broadcast(tap, len(sequences)), broadcast(intervention, len(sequences))
        for ids, state, seq_tap, seq_intervention in zip(sequences, states, taps, interventions, strict=True):
            batch = torch.tensor([list(ids)], device=self.device)
            logits = self(batch, cache=state, tap=seq_tap, intervention=seq_intervention, last_only=not all_positions)[
                0
            ]
            results.append(logits if all_positions else logits[-1])
        return results

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(iter(self.state_dict().values())).device

    def describe(self) -> Box:
        """Return the model diagram: boxes with shapes, parameter counts and memory."""
        return describe(self, self.config.kind)

    def summary(self) -> str:
        """Return a one-line summary."""
        return str(type(self.config).__doc__).split("\n")[0].replace("`", "")

    def count_parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(weight.numel() for weight in self.parameters())

    def weight_bytes(self) -> int:
        """Return the size of the weights in bytes."""
        return sum(weight.numel() * weight.element_size() for weight in self.state_dict().values())


def broadcast(value: Any, count: int) -> Sequence[Any]:
    """Return a list with one element per sequence.

    >>> broadcast("tap", 2), broadcast(["tap", None], 2)
    (['tap', 'tap'], ['tap', None])
    """
    return value if isinstance(value, list | tuple) else [value] * count
