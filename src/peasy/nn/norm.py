"""Norms: keeping vectors at one size."""

from torch import Tensor, nn

from peasy.nn import part
from peasy.nn.backward import RootNormed, learns


class RootNorm(nn.RMSNorm):
    """Divided by the root of the mean square, times a weight: torch's own, with a cheaper way back."""

    def forward(self, x: Tensor) -> Tensor:
        """`[..., width]` to the same."""
        if self.eps is not None and x.dtype == self.weight.dtype and learns(x, self.weight):
            return RootNormed.apply(x, self.weight, self.eps)
        return super().forward(x)


def make_norm(settings: part.Norm, width: int) -> nn.LayerNorm | nn.RMSNorm:
    """The norm that the settings name, for vectors of `width`."""
    if isinstance(settings, part.LayerNorm):
        return nn.LayerNorm(width, eps=settings.epsilon, bias=settings.bias)
    return RootNorm(width, eps=settings.epsilon)
