"""Token shift: half of each input vector comes from the previous token.

It has no weights, and gives a character model bigrams before its first attention. With a KV cache, the vectors of
earlier tokens are kept there.
"""

import torch
from torch import Tensor
from torch.nn import functional

from peasy.nn.backward import Shifted, learns
from peasy.nn.place import Place
from peasy.nn.scene import Scene


def shift(x: Tensor, scene: Scene, place: Place) -> Tensor:
    """Replace the first half of each vector of `[batch, time, width]` by that of the previous token, or by 0."""
    if scene.cache is None and not scene.texts and scene.sight.real is None and learns(x):
        return Shifted.apply(x)
    half = x.shape[-1] // 2
    return torch.cat([before(x[..., :half], scene, place.layer, place.part), x[..., half:]], dim=-1)


def before(x: Tensor, scene: Scene, layer: int, name: str) -> Tensor:
    """Return `x` `[batch, time, width]` of the previous token, 0 at the start; padding is skipped.

    With a KV cache, `x` is stored in layer `layer` under `state_name`.
    """
    if scene.texts:
        sequences = zip(scene.texts, x.split(scene.sizes, dim=1), strict=True)
        return torch.cat([before(x_seq, seq_ctx, layer, name) for seq_ctx, x_seq in sequences], dim=1)
    all_x = x if scene.cache is None else scene.cache.layers[layer].trail(name).extend(x)
    index = scene.sight.before()
    if index is None:
        past = all_x.shape[1] - x.shape[1]
        return all_x[:, past - 1 : -1] if past else functional.pad(all_x[:, :-1], (0, 0, 1, 0))
    previous = all_x.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, x.shape[-1]))
    return previous.masked_fill((index < 0)[..., None], 0)
