"""LM head: from hidden states to logits."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import part
from peasy.nn.even import evenly
from peasy.nn.feedforward import ACTIVATIONS
from peasy.nn.norm import make_norm


class Head(nn.Module):
    """Linear layer to the vocabulary; a tied head shares the token embedding and has no weight.

    For decoding, `packed_linear` may hold a packed linear layer with its weight and bias.
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
        """Return a one-line summary."""
        return "logits, tied to the token embedding" if self.weight is None else "logits, own weights"

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return logits `[..., vocab_size]` of `[..., d_model]`; `token_embedding` is the weight of a tied head."""
        if self.transform is not None and self.bend is not None and self.norm is not None:
            x = self.norm(self.bend(self.transform(x)))
        if self.factor != 1.0:
            x = x * self.factor
        if self.product is not None:
            logits = self.product(x)
            return logits if self.softcap is None else evenly(torch.tanh, logits / self.softcap) * self.softcap
        logits = functional.linear(x, tokens if self.weight is None else self.weight, self.bias)
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap
