"""Additive (Bahdanau) attention of 2015, from a recurrent decoder to an encoder."""

import torch
from torch import Tensor, nn

from peasy.formula import Additive, AttentionSteps, attend


class AdditiveAttention(nn.Module):
    """Additive attention, one head: scores are v · tanh(W q + U k), computed by the formula."""

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

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"1 head, v · tanh(W q + U k), width {len(self.sum)}"
