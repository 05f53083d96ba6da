"""What the three Transformers share: masks and places are made here, once, and handed down."""

import torch
from torch import Tensor

from peasy.nn.cache import Cache, extend_places
from peasy.nn.embedding import Embedding
from peasy.nn.scene import Edit, Scene
from peasy.nn.sight import Sight
from peasy.nn.tap import Tap


def set_scene(
    embedding: Embedding,
    ids: Tensor,
    real: Tensor | None,
    *,
    causal: bool,
    cache: Cache | None = None,
    tap: Tap | None = None,
    edit: Edit | None = None,
) -> Scene:
    """The scene of one pass: checks the ids, then says where everybody stands and who may look at whom."""
    batch, time = ids.shape
    embedding.check(ids, time + (0 if cache is None else cache.length))
    query, key, real = extend_places(cache, batch, time, padding_or_none(real), ids.device)
    return Scene(Sight(query, key, causal, real), cache, tap, edit)


def padding_or_none(real: Tensor | None) -> Tensor | None:
    """`real` as True and False, or None where nothing is padding."""
    if real is None or torch.compiler.is_compiling():
        return None if real is None else real.bool()
    real = real.bool()
    return None if bool(real.all()) else real
