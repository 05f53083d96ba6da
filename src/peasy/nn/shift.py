"""Token shift: half of what a part reads of each token is what it reads of the token before.

A model of characters so knows pairs of them before it has looked anywhere. Nothing is learned by it, and with a cache
the vector of the last token waits there for the next.
"""

import torch
from torch import Tensor
from torch.nn import functional

from peasy.nn.backward import Shifted, learns
from peasy.nn.place import Place
from peasy.nn.scene import Scene


def shift(x: Tensor, scene: Scene, place: Place) -> Tensor:
    """`[batch, time, width]` to the same; the first half of each vector is the one of the real token before, or 0."""
    if scene.texts:
        apart = zip(scene.texts, x.split(scene.sizes, dim=1), strict=True)
        return torch.cat([shift(own, text, place) for text, own in apart], dim=1)
    where = scene.sight.before()
    if scene.cache is None and where is None and learns(x):
        return Shifted.apply(x)
    half = x.shape[-1] // 2
    known = x[..., :half]
    if scene.cache is not None:
        known = scene.cache.layers[place.layer].trail(place.part).extend(known)
    return torch.cat([_before(known, where, x.shape[1]), x[..., half:]], dim=-1)


def _before(known: Tensor, where: Tensor | None, time: int) -> Tensor:
    """What was known of the token before each of the last `time`."""
    if where is None:
        past = known.shape[1] - time
        return known[:, past - 1 : -1] if past else functional.pad(known[:, :-1], (0, 0, 1, 0))
    found = known.gather(1, where.clamp(min=0)[..., None].expand(-1, -1, known.shape[-1]))
    return found.masked_fill((where < 0)[..., None], 0.0)
