"""Additive attention (2015): a recurrent decoder looks at what an encoder read."""

import torch
from torch import Tensor, nn

from peasy.formula import Additive, AttentionSteps, attend


class AdditiveAttention(nn.Module):
    """v · tanh(W q + U k): one head, scored by the formula's own additive scoring."""

    def __init__(self, d_query: int, d_key: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(d_query, d_attention))
        self.key = nn.Parameter(torch.empty(d_key, d_attention))
        self.sum = nn.Parameter(torch.empty(d_attention))

    def forward(self, query: Tensor, source: Tensor, real: Tensor | None, even: bool = False) -> AttentionSteps:
        """Steps of `query` `[batch, 1, query, d]` over `source` `[batch, key, d]`, where `real` `[batch, key]`.

        `even` gives every key the same weight.
        """
        looked_at = source[:, None]
        mask = None if real is None else real[:, None, None]
        scoring = Additive(self.query, self.key, self.sum * 0 if even else self.sum)
        return attend(query, looked_at, looked_at, mask=mask, scoring=scoring)

    def says(self) -> str:
        """What it is, in words."""
        return f"one head, v · tanh(W q + U k), {len(self.sum)} wide"
