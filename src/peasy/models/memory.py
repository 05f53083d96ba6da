"""The memory of models that see only the last few words."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from peasy.errors import InvalidInput


@dataclass(eq=False)
class LastWords:
    """The last `keep` ids of each text, and which of them are real."""

    keep: int
    ids: Tensor | None = None
    real: Tensor | None = None
    length: int = 0

    def extend(self, ids: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Put new words at the end; get the kept ones with them."""
        self.length += ids.shape[1]
        if self.ids is not None and self.real is not None:
            ids, real = torch.cat([self.ids, ids], dim=1), torch.cat([self.real, real], dim=1)
        start = max(ids.shape[1] - self.keep, 0)
        self.ids, self.real = ids[:, start:], real[:, start:]
        return ids, real

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was."""
        if self.ids is not None and self.real is not None:
            self.ids, self.real = self.ids[rows], self.real[rows]

    def crop(self, length: int) -> None:
        """Earlier words are gone."""
        if length < self.length:
            raise InvalidInput("This memory cannot go back.", hint="Read the shorter text from its start.")

    def fork(self) -> "LastWords":
        """The same memory once more, which goes its own way from here."""
        return replace(self)


def recent(values: Tensor, real: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """For each place the last `window` values, the own one last: `[batch, time, window]`, and which are real."""
    missing = window - 1
    values = torch.cat([values.new_zeros(len(values), missing), values], dim=1)
    real = torch.cat([real.new_zeros(len(real), missing), real], dim=1)
    return values.unfold(1, window, 1), real.unfold(1, window, 1)
