"""Model base class and decoding-state protocol, shared by training, generation and inspection."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from peasy.models.config import Config
from peasy.models.describe import Box, describe
from peasy.nn.scene import Edit
from peasy.nn.tap import Tap

Taps = Tap | Sequence[Tap | None] | None
Edits = Edit | Sequence[Edit | None] | None
"""One for all sequences, or a list with one per sequence."""


class Memory(Protocol):
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

    config: Config
    reads_source = False
    learns = "gradient"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def hidden(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: Any = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        **source: Any,
    ) -> Tensor:
        """Return the hidden states of the last layer, `[batch, time, d_model]`."""

    @abstractmethod
    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits `[..., vocab_size]` of hidden states."""

    @abstractmethod
    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> Memory:
        """Return an empty decoding state; an encoder-decoder model encodes its source here, once."""

    def forward(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        cache: Any = None,
        tap: Tap | None = None,
        edit: Edit | None = None,
        last: bool = False,
        **source: Any,
    ) -> Tensor:
        """Return the logits of the next token after each position, `[batch, time, vocab_size]`.

        `ids` `[batch, time]`; `padding_mask` False = padding, on either side; `last_only`: only after the last token.
        """
        hidden = self.hidden(ids, real=real, cache=cache, tap=tap, edit=edit, **source)
        return self.scores(hidden[:, -1:] if last else hidden)

    def read(
        self,
        texts: Sequence[Sequence[int]],
        memories: Sequence[Any],
        *,
        every: bool = False,
        tap: Taps = None,
        edit: Edits = None,
    ) -> list[Tensor]:
        """Run new tokens of several sequences of any lengths without padding, each with its own decoding state.

        Returns the logits after each sequence's last token, `[vocab_size]`, or with `all_positions` after every token,
        `[time, vocab_size]`. Taps and interventions are one for all, or a list with one per sequence (None = none);
        each acts as if its sequence were alone. Invalid ids or lengths raise before any state has changed.
        """
        results = []
        for ids, state, sequence_tap, sequence_edit in zip(
            texts, memories, one_each(tap, len(texts)), one_each(edit, len(texts)), strict=True
        ):
            batch = torch.tensor([list(ids)], device=self.device)
            logits = self(batch, cache=state, tap=sequence_tap, edit=sequence_edit, last=not every)[0]
            results.append(logits if every else logits[-1])
        return results

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(iter(self.state_dict().values())).device

    def describe(self) -> Box:
        """Return the model diagram: boxes with shapes, parameter counts and memory."""
        return describe(self, self.config.kind)

    def says(self) -> str:
        """Return a one-line summary."""
        return str(type(self.config).__doc__).split("\n")[0].replace("`", "")

    def count_parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(weight.numel() for weight in self.parameters())

    def memory(self) -> int:
        """Return the size of the weights in bytes."""
        return sum(weight.numel() * weight.element_size() for weight in self.state_dict().values())


def one_each(given: Any, count: int) -> Sequence[Any]:
    """Return a list with one element per sequence.

    >>> one_each("tap", 2), one_each(["tap", None], 2)
    (['tap', 'tap'], ['tap', None])
    """
    return given if isinstance(given, list | tuple) else [given] * count
