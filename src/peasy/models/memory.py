"""Token window: the decoding state of models that use only the last few tokens."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from peasy.errors import InvalidInput


@dataclass(eq=False)
class LastWords:
    """The last `size` ids of each sequence, and their padding mask."""

    keep: int
    ids: Tensor | None = None
    real: Tensor | None = None
    length: int = 0

    def extend(self, ids: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Append new ids; return them after the kept ones."""
        self.length += ids.shape[1]
        if self.ids is not None and self.real is not None:
            ids, real = torch.cat([self.ids, ids], dim=1), torch.cat([self.real, real], dim=1)
        start = max(ids.shape[1] - self.keep, 0)
        self.ids, self.real = ids[:, start:], real[:, start:]
        return ids, real

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""
        if self.ids is not None and self.real is not None:
            self.ids, self.real = self.ids[rows], self.real[rows]

    def crop(self, length: int) -> None:
        """Raise if tokens would have to be dropped: earlier tokens are not kept."""
        if length < self.length:
            raise InvalidInput("This state cannot be cropped.", hint="Run the shorter sequence from its start.")

    def fork(self) -> "LastWords":
        """Return an independent copy."""
        return replace(self)


def recent(values: Tensor, real: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the last `window` values up to each position, `[batch, time, window]`, and their padding mask."""
    padding = window - 1
    values = torch.cat([values.new_zeros(len(values), padding), values], dim=1)
    real = torch.cat([real.new_zeros(len(real), padding), real], dim=1)
    return values.unfold(1, window, 1), real.unfold(1, window, 1)
