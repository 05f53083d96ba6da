"""Positions: where a token stands, as vectors, as turns of queries and keys, or as a bias of the scores.

Nothing here is a buffer: all is computed from the places of a pass, so a model built without memory
("meta") and filled from a file has nothing left to fill.
"""

import math

import torch
from torch import Tensor, nn

from peasy.nn import part
from peasy.nn.backward import Turned, learns
from peasy.nn.even import evenly

Turn = tuple[Tensor, Tensor]
"""Cosine and sine of each place's angles, `[batch or 1, 1, time, d_head / 2]`."""


def sinusoids(places: Tensor, width: int, layout: str) -> Tensor:
    """The paper's vectors of place, `[..., width]`: sin and cos of place / 10000^(2i / width).

    >>> sinusoids(torch.tensor([0]), 4, "pairs")
    tensor([[0., 1., 0., 1.]])
    """
    half = (width + 1) // 2
    frequency = torch.exp(torch.arange(half, device=places.device) * (-2 * math.log(10_000.0) / width))
    angle = places[..., None].float() * frequency
    sin, cos = evenly(torch.sin, angle), evenly(torch.cos, angle)
    if layout == "halves":
        return torch.cat([sin, cos], dim=-1)[..., :width]
    return torch.stack([sin, cos], dim=-1).flatten(-2)[..., :width]


def turns(places: Tensor, d_head: int, settings: part.Rotary) -> Turn:
    """By which angles the pairs of a head are turned at each place."""
    exponent = torch.arange(0, d_head, 2, device=places.device).float() / d_head
    frequency = scale_frequency(1.0 / settings.base**exponent, settings.scaling)
    angle = places[:, None, :, None].float() * frequency
    return evenly(torch.cos, angle), evenly(torch.sin, angle)


def scale_frequency(frequency: Tensor, scaling: part.LinearScaling | part.BandScaling | None) -> Tensor:
    """Slower turns for texts longer than those of the training."""
    if scaling is None:
        return frequency
    if isinstance(scaling, part.LinearScaling):
        return frequency / scaling.factor
    turns_in_context = scaling.context * frequency / (2 * math.pi)
    kept = ((turns_in_context - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return kept * frequency + (1 - kept) * frequency / scaling.factor


def turn(x: Tensor, by: Turn) -> Tensor:
    """Turn each pair (i, i + half) of `[batch, head, time, d_head]`."""
    cos, sin = by[0].to(x.dtype), by[1].to(x.dtype)
    if learns(x):
        return Turned.apply(x, cos, sin)
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


class AlibiBias:
    """Each head subtracts its slope times the distance."""

    def __init__(self, heads: int) -> None:
        self.slopes = alibi_slopes(heads)

    def __call__(self, distance: Tensor) -> Tensor:
        """From distances `[batch, query, key]` to a bias `[batch, head, query, key]`."""
        slopes = torch.tensor(self.slopes, device=distance.device)
        return -slopes[:, None, None] * distance[:, None].abs()


def alibi_slopes(heads: int) -> list[float]:
    """Slopes of each head: a falling geometric row; between powers of two every second of the finer row is added.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    finer = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)]
    return slopes + finer[: heads - power]


class RelativeBias(nn.Module):
    """One learned number for each bucket of distances and each head, shared by all layers of a stack."""

    def __init__(self, heads: int, settings: part.Relative, causal: bool) -> None:
        super().__init__()
        self.settings, self.causal = settings, causal
        self.weight = nn.Parameter(torch.empty(settings.buckets, heads))

    def forward(self, distance: Tensor) -> Tensor:
        """From distances `[batch, query, key]` to a bias `[batch, head, query, key]`."""
        return self.weight[self.bucket(distance)].permute(0, 3, 1, 2)

    def says(self) -> str:
        """What it is, in words."""
        return f"{self.settings.buckets} buckets of distances, a number for each head"

    def bucket(self, distance: Tensor) -> Tensor:
        """Near places have a bucket each, far ones share, ever more of them; both ways halve the buckets."""
        buckets, first = self.settings.buckets, torch.zeros_like(distance)
        if self.causal:
            distance = distance.clamp(min=0)
        else:
            buckets //= 2
            first, distance = (distance < 0) * buckets, distance.abs()
        near = buckets // 2
        growth = torch.log(distance.clamp(min=1).float() / near) / math.log(self.settings.distance / near)
        far = (near + (growth * (buckets - near)).long()).clamp(max=buckets - 1)
        return first + torch.where(distance < near, distance, far)
