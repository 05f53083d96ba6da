"""Position encodings: sinusoidal, rotary (RoPE), ALiBi, and T5 relative bias.

Nothing here is a buffer: all is computed from the positions of a pass, so a model built on the meta device and
filled from a file is complete.
"""

import math

import torch
from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.functional import RotaryFn, batch_invariant, use_fused_backward

CosSin = tuple[Tensor, Tensor]
"""Cosine and sine of the RoPE angles, `[batch or 1, 1, time, d_head / 2]`."""


def sinusoidal_encoding(positions: Tensor, width: int, layout: str) -> Tensor:
    """Return the sinusoidal position encoding `[..., width]`: sin and cos of position / 10000^(2i / width).

    >>> sinusoidal_encoding(torch.tensor([0]), 4, "pairs")
    tensor([[0., 1., 0., 1.]])
    """
    half = (width + 1) // 2
    frequency = torch.exp(torch.arange(half, device=positions.device) * (-2 * math.log(10_000.0) / width))
    angle = positions[..., None].float() * frequency
    sin, cos = batch_invariant(torch.sin, angle), batch_invariant(torch.cos, angle)
    if layout == "halves":
        return torch.cat([sin, cos], dim=-1)[..., :width]
    return torch.stack([sin, cos], dim=-1).flatten(-2)[..., :width]


def rope_cos_sin(positions: Tensor, d_head: int, settings: nn_config.RotaryConfig) -> CosSin:
    """Return cosine and sine of the RoPE angles at each position."""
    exponent = torch.arange(0, d_head, 2, device=positions.device).float() / d_head
    frequency = scale_rope_frequency(1.0 / settings.base**exponent, settings.scaling)
    angle = positions[:, None, :, None].float() * frequency
    return batch_invariant(torch.cos, angle), batch_invariant(torch.sin, angle)


def scale_rope_frequency(
    frequency: Tensor, scaling: nn_config.LinearRopeScaling | nn_config.Llama3RopeScaling | None
) -> Tensor:
    """Scale the RoPE frequencies for sequences longer than those of the training."""
    if scaling is None:
        return frequency
    if isinstance(scaling, nn_config.LinearRopeScaling):
        return frequency / scaling.factor
    periods_in_context = scaling.original_max_seq_len * frequency / (2 * math.pi)
    unscaled_share = (
        (periods_in_context - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    ).clamp(0, 1)
    return unscaled_share * frequency + (1 - unscaled_share) * frequency / scaling.factor


def apply_rope(x: Tensor, cos_sin: CosSin) -> Tensor:
    """Apply RoPE: rotate each pair (i, i + half) of `[batch, head, time, d_head]`."""
    cos, sin = cos_sin[0].to(x.dtype), cos_sin[1].to(x.dtype)
    if use_fused_backward(x):
        return RotaryFn.apply(x, cos, sin)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class AlibiBias:
    """ALiBi: minus slope times distance, with one slope per head."""

    def __init__(self, heads: int) -> None:
        self.slopes = alibi_slopes(heads)

    def __call__(self, distance: Tensor) -> Tensor:
        """Return the bias `[batch, head, query, key]` for distances `[batch, query, key]`."""
        slopes = torch.tensor(self.slopes, device=distance.device)
        return -slopes[:, None, None] * distance[:, None].abs()


def alibi_slopes(heads: int) -> list[float]:
    """Return the ALiBi slope of each head: geometric; between powers of two, filled up from the next finer sequence.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    finer = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return slopes + finer[: heads - power]


class RelativeBias(nn.Module):
    """T5 relative position bias: one learned number per head and distance bucket, shared by all layers of a stack."""

    def __init__(self, heads: int, settings: nn_config.RelativeBiasConfig, causal: bool) -> None:
        super().__init__()
        self.settings, self.causal = settings, causal
        self.weight = nn.Parameter(torch.empty(settings.num_buckets, heads))

    def forward(self, distance: Tensor) -> Tensor:
        """Return the bias `[batch, head, query, key]` for distances `[batch, query, key]`."""
        return self.weight[self.bucket(distance)].permute(0, 3, 1, 2)

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"{self.settings.num_buckets} distance buckets, one bias per head"

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance: one each when near, logarithmic when far; half for each direction."""
        buckets, offset = self.settings.num_buckets, torch.zeros_like(distance)
        if self.causal:
            distance = distance.clamp(min=0)
        else:
            buckets //= 2
            offset, distance = (distance < 0) * buckets, distance.abs()
        near = buckets // 2
        growth = torch.log(distance.clamp(min=1).float() / near) / math.log(self.settings.max_distance / near)
        far = (near + (growth * (buckets - near)).long()).clamp(max=buckets - 1)
        return offset + torch.where(distance < near, distance, far)
