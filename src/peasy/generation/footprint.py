"""How many bytes the memory of a text takes, so that a budget can be kept before anything is read."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.cache import BLOCK, Cache, LayerCache

_TRIED = 32
"""So many tokens are read once to see what they leave behind; a state has reached its full size by then."""


def held_bytes(thing: Any) -> int:
    """The bytes of all tensors of a memory.

    >>> held_bytes([torch.zeros(3), (torch.zeros(2, dtype=torch.int8), None)])
    14
    """
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if isinstance(thing, (list, tuple)):
        return sum(map(held_bytes, thing))
    if is_dataclass(thing) and not isinstance(thing, type):
        return sum(held_bytes(getattr(thing, field.name)) for field in fields(thing))
    return 0


@dataclass(frozen=True)
class Footprint:
    """What one text takes: bytes in any case, for each source token, and for each token in each layer with its window.

    `at_once`: how many tokens are read in one go at most; a layer with a window holds them beside the window.
    """

    fixed: int
    source: int
    layers: tuple[tuple[int, int | None], ...]
    at_once: int

    def bytes(self, tokens: int, source: int = 0) -> int:
        """The most that a text of so many tokens will ever hold, answering a source of so many."""
        room = sum(width * self._room(tokens, window) for width, window in self.layers)
        return self.fixed + source * self.source + room

    def _room(self, tokens: int, window: int | None) -> int:
        if window is not None:  # such a layer grows by half when it is full, and forgets a block at a time
            tokens = min(tokens, window + BLOCK + self.at_once) * 3 // 2
        return -(-tokens // BLOCK) * BLOCK


@torch.inference_mode()
def measure(model: Model, at_once: int = 1) -> Footprint:
    """Read a few tokens and see what they leave behind: true for every kind of model, precision and packing.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> measure(model).bytes(256) == held_bytes(model.start(room=256)) + 2 * 4 * 256 * 64 * 2
    True
    """
    tokens = min(_TRIED, getattr(model.config, "context", None) or _TRIED)
    source = {"source": torch.zeros(1, 1, dtype=torch.long, device=model.device)} if model.reads_source else {}
    memory = model.start(room=tokens, **source)
    model.read([[0] * tokens], [memory])
    if not isinstance(memory, Cache):
        looked_at = held_bytes(getattr(memory, "source", None))
        return Footprint(held_bytes(memory) - looked_at, looked_at, (), at_once)
    looked_at = held_bytes(memory.source) + sum(held_bytes(layer.source) for layer in memory.layers)
    return Footprint(0, looked_at, tuple((_width(layer), layer.window) for layer in memory.layers), at_once)


def _width(layer: LayerCache) -> int:
    """Bytes of one token in one layer."""
    assert layer.keys is not None
    return held_bytes((layer.keys, layer.values)) // layer.keys.shape[2]
