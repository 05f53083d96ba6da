"""Token window: the decoding state of the n-gram and word2vec models, which use only the last few tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor

from peasy.nn.kv_cache import ForwardOnlyState


@dataclass(eq=False)
class TokenWindow(ForwardOnlyState):
    """The last `size` ids of each sequence, and their padding mask."""

    size: int
    ids: Tensor | None = None
    padding_mask: Tensor | None = None
    length: int = 0

    def extend(self, ids: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Append new ids; return them after the kept ones."""
        self.length += ids.shape[1]
        if self.ids is not None and self.padding_mask is not None:
            ids, padding_mask = torch.cat([self.ids, ids], dim=1), torch.cat([self.padding_mask, padding_mask], dim=1)
        start = max(ids.shape[1] - self.size, 0)
        self.ids, self.padding_mask = ids[:, start:], padding_mask[:, start:]
        return ids, padding_mask

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""
        if self.ids is not None and self.padding_mask is not None:
            self.ids, self.padding_mask = self.ids[rows], self.padding_mask[rows]


def extend_window(window: TokenWindow | None, ids: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return ids and padding mask (True = token) after those in the window, to which they are appended."""
    mask = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask.bool()
    return (ids, mask) if window is None else window.extend(ids, mask)


def sliding_windows(values: Tensor, padding_mask: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the last `window` values up to each position, `[batch, time, window]`, and their padding mask."""
    padding = window - 1
    values = torch.cat([values.new_zeros(len(values), padding), values], dim=1)
    padding_mask = torch.cat([padding_mask.new_zeros(len(padding_mask), padding), padding_mask], dim=1)
    return values.unfold(1, window, 1), padding_mask.unfold(1, window, 1)
