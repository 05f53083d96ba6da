"""Norms: keeping vectors at one size."""

from torch import nn

from peasy.nn import part


def make_norm(settings: part.Norm, width: int) -> nn.LayerNorm | nn.RMSNorm:
    """The norm that the settings name, for vectors of `width`."""
    if isinstance(settings, part.LayerNorm):
        return nn.LayerNorm(width, eps=settings.epsilon, bias=settings.bias)
    return nn.RMSNorm(width, eps=settings.epsilon)
