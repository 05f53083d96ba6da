"""From the last vector to a score for every word."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import part
from peasy.nn.even import evenly
from peasy.nn.feedforward import ACTIVATIONS
from peasy.nn.norm import make_norm


class Head(nn.Module):
    """Scores of the next word; tied heads borrow the token vectors and own no weight.

    For decoding, `product` may hold weights and bias packed.
    """

    def __init__(self, vocabulary: int, d_model: int, settings: part.Head, norm: part.Norm | None = None) -> None:
        super().__init__()
        self.product: nn.Module | None = None
        self.factor = d_model**-0.5 if settings.scaled else 1.0
        self.softcap = settings.softcap
        self.bend = ACTIVATIONS[settings.transform] if settings.transform else None
        self.transform = nn.Linear(d_model, d_model) if settings.transform else None
        self.norm = make_norm(norm or part.LayerNorm(), d_model) if settings.transform else None
        self.weight = None if settings.tied else nn.Parameter(torch.empty(vocabulary, d_model))
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if settings.bias else None

    def says(self) -> str:
        """What it is, in words."""
        return "scores by the token vectors" if self.weight is None else "scores by weights of its own"

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """`[..., d_model]` to `[..., vocabulary]`; `tokens` are the token vectors a tied head borrows."""
        if self.transform is not None and self.bend is not None and self.norm is not None:
            x = self.norm(self.bend(self.transform(x)))
        if self.factor != 1.0:
            x = x * self.factor
        if self.product is not None:
            scores = self.product(x)
            return scores if self.softcap is None else evenly(torch.tanh, scores / self.softcap) * self.softcap
        scores = functional.linear(x, tokens if self.weight is None else self.weight, self.bias)
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap
