"""LM head and classification head: from hidden states to logits."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from peasy.nn import config as nn_config
from peasy.nn.feedforward import ACTIVATIONS
from peasy.nn.functional import batch_invariant, make_norm


class LMHead(nn.Module):
    """Linear layer to the vocabulary; a tied head shares the token embedding, of this `width`, and has no weight."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        settings: nn_config.LMHeadConfig,
        norm: nn_config.NormConfig | None = None,
        width: int | None = None,
    ) -> None:
        super().__init__()
        width = width or d_model
        self.packed_linear: nn.Module | None = None
        self.scale = (d_model**-0.5 if settings.scaled else 1.0) / settings.divisor
        self.softcap = settings.softcap
        self.activation = ACTIVATIONS[settings.transform] if settings.transform else None
        self.transform = nn.Linear(d_model, width, bias=settings.transform_bias) if settings.transform else None
        self.norm = make_norm(norm or nn_config.LayerNormConfig(), width) if settings.transform else None
        self.weight = None if settings.tied else nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if settings.bias else None

    def pack(self, make_linear: Callable[[Tensor, Tensor | None], nn.Module], token_embedding: Tensor) -> None:
        """Compute the logits by one linear layer of the head's own weights or the tied embedding, for decoding."""
        self.packed_linear = make_linear(token_embedding if self.weight is None else self.weight, self.bias)

    def summary(self) -> str:
        """Return a one-line summary."""
        return "logits, tied to the token embedding" if self.weight is None else "logits, own weights"

    def forward(self, x: Tensor, token_embedding: Tensor) -> Tensor:
        """Return logits `[..., vocab_size]` of `[..., d_model]`; `token_embedding` is the weight of a tied head."""
        if self.transform is not None and self.activation is not None and self.norm is not None:
            x = self.norm(self.activation(self.transform(x)))
        if self.scale != 1.0:
            x = x * self.scale
        if self.packed_linear is not None:
            logits = self.packed_linear(x)
            return logits if self.softcap is None else batch_invariant(torch.tanh, logits / self.softcap) * self.softcap
        logits = functional.linear(x, token_embedding if self.weight is None else self.weight, self.bias)
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap


class Classifier(nn.Module):
    """Linear layer to the labels, of a text's vector or of each token's; a linear layer with activation may precede."""

    def __init__(self, d_model: int, settings: nn_config.ClassifierConfig, norm: nn_config.NormConfig) -> None:
        super().__init__()
        self.settings = settings
        self.activation = ACTIVATIONS[settings.transform] if settings.transform else None
        self.transform = nn.Linear(d_model, d_model, bias=settings.transform_bias) if settings.transform else None
        self.norm = make_norm(norm, d_model) if settings.transform_norm else None
        self.output = nn.Linear(d_model, len(settings.labels), bias=settings.bias)

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"{len(self.settings.labels)} labels for each {self.settings.level}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[..., labels]` of `[..., d_model]`."""
        if self.transform is not None and self.activation is not None:
            x = self.activation(self.transform(x))
        return self.output(x if self.norm is None else self.norm(x))
