"""Normalisation layers: LayerNorm and RMSNorm."""

from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.fused_autograd import RMSNormFn, use_fused_backward


class RMSNorm(nn.RMSNorm):
    """RMSNorm of torch, with a faster backward pass in training on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., width]`."""
        if self.eps is not None and x.dtype == self.weight.dtype and use_fused_backward(x, self.weight):
            return RMSNormFn.apply(x, self.weight, self.eps)
        return super().forward(x)


def make_norm(settings: nn_config.NormConfig, width: int) -> nn.LayerNorm | nn.RMSNorm:
    """Build the norm described by `settings` for vectors of `width`."""
    if isinstance(settings, nn_config.LayerNormConfig):
        return nn.LayerNorm(width, eps=settings.eps, bias=settings.bias)
    return RMSNorm(width, eps=settings.eps)
