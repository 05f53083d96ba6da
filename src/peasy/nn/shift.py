"""The token before: what a part knew of it, and the token shift that reads it.

With a token shift, half of what a part reads of each token is what it reads of the token before: a model of characters
knows pairs of them before it has looked anywhere. Nothing is learned by it. With a cache, what is known of the last
token waits there for the next.
"""

import torch
from torch import Tensor
from torch.nn import functional

from peasy.nn.backward import Shifted, learns
from peasy.nn.place import Place
from peasy.nn.scene import Scene


def shift(x: Tensor, scene: Scene, place: Place) -> Tensor:
    """`[batch, time, width]` to the same; the first half of each vector is the one of the real token before, or 0."""
    if scene.cache is None and not scene.texts and scene.sight.real is None and learns(x):
        return Shifted.apply(x)
    half = x.shape[-1] // 2
    return torch.cat([before(x[..., :half], scene, place.layer, place.part), x[..., half:]], dim=-1)


def before(x: Tensor, scene: Scene, layer: int, name: str) -> Tensor:
    """`x` `[batch, time, width]` of the real token before each token, 0 where there is none; remembered by `name`."""
    if scene.texts:
        apart = zip(scene.texts, x.split(scene.sizes, dim=1), strict=True)
        return torch.cat([before(own, text, layer, name) for text, own in apart], dim=1)
    known = x if scene.cache is None else scene.cache.layers[layer].trail(name).extend(x)
    where = scene.sight.before()
    if where is None:
        past = known.shape[1] - x.shape[1]
        return known[:, past - 1 : -1] if past else functional.pad(known[:, :-1], (0, 0, 1, 0))
    found = known.gather(1, where.clamp(min=0)[..., None].expand(-1, -1, x.shape[-1]))
    return found.masked_fill((where < 0)[..., None], 0)
