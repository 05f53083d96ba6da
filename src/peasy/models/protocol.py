"""What every model can do, so that one training, one generation and one way of looking serve all kinds."""

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
"""One for all texts, or a list with one for each."""


class Memory(Protocol):
    """What a model remembers of a text while it is read: keys and values, or a recurrent state."""

    length: int

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was."""

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""

    def fork(self) -> Self:
        """The same memory once more, which goes its own way from here."""


class Model(nn.Module):
    """A model of any kind: ids in, scores out.

    `reads_source`: it answers a source (translation). `learns`: by "gradient" or by "counts".
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
        """The last vector of every token, `[batch, time, d_model]`."""

    @abstractmethod
    def scores(self, hidden: Tensor) -> Tensor:
        """From last vectors to a score for every word, `[..., vocabulary]`."""

    @abstractmethod
    def start(self, batch: int = 1, *, room: int = 0, **source: Any) -> Memory:
        """An empty memory for texts to come; a model that answers a source reads it here, once."""

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
        """Scores of what comes after each token, `[batch, time, vocabulary]`.

        `ids` `[batch, time]`; `real` False = padding, on either side; `last`: only after the last token.
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
        """Read new tokens of several texts, each into its own memory: any lengths, no padding.

        For each text the scores after its last token, `[vocabulary]`; with `every` after each: `[time, vocabulary]`.
        A list of taps or edits has one for each text (None = nobody looks); a single one serves all texts. Each sees
        its text as if it were alone. An id or a length that is refused is refused before any memory has changed.
        """
        found = []
        for ids, memory, watcher, change in zip(
            texts, memories, one_each(tap, len(texts)), one_each(edit, len(texts)), strict=True
        ):
            new = torch.tensor([list(ids)], device=self.device)
            scores = self(new, cache=memory, tap=watcher, edit=change, last=not every)[0]
            found.append(scores if every else scores[-1])
        return found

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.state_dict().values())).device

    def describe(self) -> Box:
        """Figure 1 of this very object: boxes with shapes, parameters and memory."""
        return describe(self, self.config.kind)

    def says(self) -> str:
        """What it is, in words."""
        return str(type(self.config).__doc__).split("\n")[0].replace("`", "")

    def count_parameters(self) -> int:
        """How many numbers there are to learn."""
        return sum(weight.numel() for weight in self.parameters())

    def memory(self) -> int:
        """How many bytes the weights take."""
        return sum(weight.numel() * weight.element_size() for weight in self.state_dict().values())


def one_each(given: Any, count: int) -> Sequence[Any]:
    """A list with one for each text.

    >>> one_each("tap", 2), one_each(["tap", None], 2)
    (['tap', 'tap'], ['tap', None])
    """
    return given if isinstance(given, list | tuple) else [given] * count
