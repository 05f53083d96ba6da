"""Model base class and decoding-state protocol, shared by training, generation and inspection."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self

import torch
from torch import Tensor, nn
from typing_extensions import TypeVar

from peasy.errors import InvalidInput
from peasy.models.config import ModelConfig
from peasy.models.describe import Box, describe
from peasy.nn.intervention import InterventionLike
from peasy.nn.tap import Tap
from peasy.parameters import Record

Taps = Sequence[Tap | None] | None
Interventions = Sequence[InterventionLike | None] | None
"""One per sequence, None = none."""


class DecodeState(Protocol):
    """Decoding state of a model: a KV cache, a recurrent state, or the last tokens."""

    length: int

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""

    def fork(self) -> Self:
        """Return an independent copy."""


State = TypeVar("State", bound=DecodeState, default=Any)


class ModelInputs(Record, Generic[State], eq=False):
    """Optional inputs of one forward pass, beside the token ids."""

    padding_mask: Tensor | None = None
    """`[batch, time]`, False = padding, on either side."""
    cache: State | None = None
    """Decoding state from `new_state`; the pass extends it."""
    tap: Tap | None = None
    intervention: InterventionLike | None = None
    source: Tensor | None = None
    """Source ids `[batch, time]` of an encoder-decoder model, if the cache does not hold its encoder output."""
    source_padding_mask: Tensor | None = None
    segments: Tensor | None = None
    """Segment ids (token types) `[batch, time]` of an encoder."""


def require_source(source: Tensor | None) -> Tensor:
    """Return the source of an encoder-decoder model; raise if there is none."""
    if source is None:
        raise InvalidInput("This model needs a source sequence, but none was given.", hint="Pass source=ids.")
    return source


class Model(nn.Module, Generic[State]):
    """Base class of all models: token ids in, logits out. A subclass defines `_hidden`, `logits` and `_new_state`.

    `is_encoder_decoder`: it has an encoder for a source sequence (translation). `trained_by`: "gradient" or "counts".
    """

    config: ModelConfig
    is_encoder_decoder = False
    trained_by = "gradient"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def _hidden(self, ids: Tensor, inputs: ModelInputs[State]) -> Tensor:
        """Return the hidden states of the last layer, `[batch, time, d_model]`."""

    @abstractmethod
    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states."""

    @abstractmethod
    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> State:
        """Return an empty decoding state."""

    def hidden(
        self,
        ids: Tensor,
        *,
        padding_mask: Tensor | None = None,
        cache: State | None = None,
        tap: Tap | None = None,
        intervention: InterventionLike | None = None,
        source: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states of the last layer, `[batch, time, d_model]`; see `ModelInputs`."""
        inputs = ModelInputs(padding_mask, cache, tap, intervention, source, source_padding_mask, segments)
        return self._hidden(ids, inputs)

    def forward(self, ids: Tensor, *, last_only: bool = False, **inputs: Any) -> Tensor:
        """Return the logits of the next token after each position, `[batch, time, vocab_size]`.

        `last_only`: only after the last token. `inputs`: as of `hidden`.
        """
        hidden = self.hidden(ids, **inputs)  # not _hidden: training replaces `hidden` by its compiled form
        return self.logits(hidden[:, -1:] if last_only else hidden)

    def new_state(
        self, *, capacity: int = 0, source: Tensor | None = None, source_padding_mask: Tensor | None = None
    ) -> State:
        """Return an empty decoding state for `capacity` tokens; an encoder-decoder model encodes its source, once."""
        return self._new_state(capacity, source, source_padding_mask)

    def forward_varlen(
        self,
        sequences: Sequence[Sequence[int]],
        states: Sequence[State],
        *,
        all_positions: bool = False,
        tap: Taps = None,
        intervention: Interventions = None,
    ) -> list[Tensor]:
        """Run new tokens of several sequences of any lengths without padding, each with its own decoding state.

        Returns the logits after each sequence's last token, `[vocab_size]`, or with `all_positions` after every token,
        `[time, vocab_size]`. Each sequence has its own tap and intervention, which act as if it were alone.
        Invalid ids or lengths raise before any state has changed.
        """
        results, none = [], [None] * len(sequences)
        taps, interventions = tap or none, intervention or none
        for ids, state, seq_tap, seq_intervention in zip(sequences, states, taps, interventions, strict=True):
            batch = torch.tensor([list(ids)], device=self.device)
            logits = self(batch, cache=state, tap=seq_tap, intervention=seq_intervention, last_only=not all_positions)
            results.append(logits[0] if all_positions else logits[0, -1])
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
