"""Position encodings: sinusoidal, rotary (RoPE), ALiBi, and T5 relative bias.

Nothing here is a buffer: all is computed from the positions of a pass, so a model built on the meta device and
filled from a file is complete.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from peasy.formula.positions import alibi_slopes
from peasy.nn import config as nn_config
from peasy.nn.functional import RotaryFn, batch_invariant, use_fused_backward

CosSin = tuple[Tensor, Tensor]
"""Cosine and sine of the RoPE angles, `[batch or 1, 1, time, d_head / 2]`."""


def sinusoidal_encoding(positions: Tensor, width: int, settings: nn_config.SinusoidalPositionConfig) -> Tensor:
    """Return the sinusoidal position encoding `[..., width]`: sin and cos of position / 10000^(2i / width).

    >>> sinusoidal_encoding(torch.tensor([0]), 4, nn_config.SinusoidalPositionConfig())
    tensor([[0., 1., 0., 1.]])
    """
    half = (width + 1) // 2
    steps = max(half - 1, 1) if settings.reaches_base else width / 2
    frequency = torch.exp(torch.arange(half, device=positions.device) * (-math.log(10_000.0) / steps))
    angle = (positions + settings.offset)[..., None].float() * frequency
    sin, cos = batch_invariant(torch.sin, angle), batch_invariant(torch.cos, angle)
    if settings.layout == "halves":
        return torch.cat([sin, cos], dim=-1)[..., :width]
    return torch.stack([sin, cos], dim=-1).flatten(-2)[..., :width]


def rope_of_layer(settings: nn_config.RotaryConfig, layer: int, window: int | None) -> nn_config.RotaryConfig | None:
    """Return the settings of one layer: those of a layer with a window may differ; None = it has no rotation."""
    if layer in settings.skipped_layers:
        return None
    if window is None or settings.local_base is None:
        return settings
    return replace(settings, base=settings.local_base, scaling=None)


def rope_cos_sin(positions: Tensor, d_head: int, settings: nn_config.RotaryConfig) -> CosSin:
    """Return cosine and sine of the RoPE angles at each position."""
    angle = positions[:, None, :, None].float() * rope_frequency(d_head, settings, positions.device)
    cos, sin = batch_invariant(torch.cos, angle), batch_invariant(torch.sin, angle)
    factor = rope_attention_factor(settings.scaling)
    return (cos, sin) if factor == 1 else (cos * factor, sin * factor)


def rope_frequency(d_head: int, settings: nn_config.RotaryConfig, device: torch.device | None = None) -> Tensor:
    """Return the RoPE frequency of each pair of rotated dimensions, scaled if the settings say so."""
    width = settings.rotated_width(d_head)
    return _scale_frequency(1.0 / settings.base ** (torch.arange(0, width, 2, device=device).float() / width), settings)


def _scale_frequency(frequency: Tensor, settings: nn_config.RotaryConfig) -> Tensor:
    """Scale the RoPE frequencies for sequences longer than those of the training."""
    scaling = settings.scaling
    if scaling is None:
        return frequency
    if isinstance(scaling, nn_config.LinearRopeScaling):
        return frequency / scaling.factor
    if isinstance(scaling, nn_config.LongRopeScaling):
        return frequency / torch.tensor(scaling.short_factors, device=frequency.device)
    if isinstance(scaling, nn_config.YarnRopeScaling):
        scaled_share = _yarn_ramp(len(frequency), settings.base, scaling).to(frequency.device)
        return frequency / scaling.factor * scaled_share + frequency * (1 - scaled_share)
    periods_in_context = scaling.original_max_seq_len * frequency / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    unscaled_share = ((periods_in_context - low) / (high - low)).clamp(0, 1)
    return unscaled_share * frequency + (1 - unscaled_share) * frequency / scaling.factor


def _yarn_ramp(pairs: int, base: float, scaling: nn_config.YarnRopeScaling) -> Tensor:
    """Return how much of each frequency is scaled: 0 up to the pair with beta_fast periods, 1 from beta_slow on."""

    def pair_with(periods: float) -> float:
        return pairs * math.log(scaling.original_max_seq_len / (periods * 2 * math.pi)) / math.log(base)

    first, last = pair_with(scaling.beta_fast), pair_with(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    last = first + 0.001 if first == last else last
    return ((torch.arange(pairs, dtype=torch.float32) - first) / (last - first)).clamp(0, 1)


def rope_attention_factor(scaling: nn_config.RopeScaling | None) -> float:
    """Return the factor of cosine and sine, by which YaRN and LongRoPE sharpen attention in long sequences."""
    if isinstance(scaling, nn_config.YarnRopeScaling) and scaling.attention_factor is None:
        return 0.1 * math.log(scaling.factor) + 1.0
    return getattr(scaling, "attention_factor", None) or 1.0


def apply_rope(x: Tensor, cos_sin: CosSin) -> Tensor:
    """Apply RoPE: rotate each pair (i, i + half) of `[batch, head, time, d_head]`; the rest of a head is kept."""
    width = 2 * cos_sin[0].shape[-1]
    if width < x.shape[-1]:
        return torch.cat([apply_rope(x[..., :width], cos_sin), x[..., width:]], dim=-1)
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
