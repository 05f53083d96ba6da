"""How many bytes the memory of a text takes, so that a budget can be kept before anything is read."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

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
    if isinstance(thing, dict):
        return sum(map(held_bytes, thing.values()))
    if isinstance(thing, (list, tuple)):
        return sum(map(held_bytes, thing))
    if is_dataclass(thing) and not isinstance(thing, type):
        return sum(held_bytes(getattr(thing, field.name)) for field in fields(thing))
    return 0


class Part(NamedTuple):
    """Bytes of each token in one part of a memory; its room is taken at once, or grows by half whenever it is full."""

    width: int
    window: int | None = None
    grows: bool = False


@dataclass(frozen=True)
class Footprint:
    """What one text takes: bytes in any case, for each source token, and for each token in each part of its memory.

    `at_once`: how many tokens are read in one go at most; a part with a window holds them beside the window.
    """

    fixed: int
    source: int
    parts: tuple[Part, ...]
    at_once: int

    def bytes(self, tokens: int, source: int = 0) -> int:
        """The most that a text of so many tokens will ever hold, answering a source of so many."""
        return self.fixed + source * self.source + sum(part.width * self._room(tokens, part) for part in self.parts)

    def _room(self, tokens: int, part: Part) -> int:
        if part.window is not None:  # it forgets a block at a time
            tokens = min(tokens, part.window + BLOCK + self.at_once)
        tokens = tokens * 3 // 2 if part.grows else tokens
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
    source = torch.zeros(1, 1, dtype=torch.long, device=model.device) if model.reads_source else None
    memory = model.start(room=tokens, source=source)
    model.read([[0] * tokens], [memory])
    if not isinstance(memory, Cache):
        looked_at = held_bytes(getattr(memory, "source", None))
        return Footprint(held_bytes(memory) - looked_at, looked_at, (), at_once)
    looked_at = held_bytes(memory.source) + sum(held_bytes(layer.source) for layer in memory.layers)
    return Footprint(0, looked_at, tuple(part for layer in memory.layers for part in _parts(layer)), at_once)


def _parts(layer: LayerCache) -> list[Part]:
    assert layer.keys is not None
    width = held_bytes((layer.keys, layer.values)) // layer.keys.shape[2]
    trails = [trail.held for trail in layer.trails.values() if trail.held is not None]
    grown = [Part(held_bytes(held) // held.shape[1], grows=True) for held in trails]
    return [Part(width, layer.window, grows=layer.window is not None), *grown]
