"""Memory footprint of a decode state, measured once so that requests can be admitted within a byte budget."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.cache import BLOCK, Cache, LayerCache

_TRIED = 32
"""Length of the measured pass; a recurrent state has reached its full size by then."""


def held_bytes(thing: Any) -> int:
    """Return the bytes of all tensors in nested lists, dicts and dataclasses.

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
    """Bytes per token of one cache buffer; its capacity is allocated at once, or grows by half when full."""

    width: int
    window: int | None = None
    grows: bool = False


@dataclass(frozen=True)
class Footprint:
    """Bytes of one sequence's state: fixed, per source token, and per token of each cache buffer.

    `prefill_chunk`: most tokens per pass; a buffer with a window holds them beside the window.
    """

    fixed: int
    source: int
    parts: tuple[Part, ...]
    at_once: int

    def bytes(self, tokens: int, source: int = 0) -> int:
        """Return the most bytes that a sequence of this length will hold, with a source of this length."""
        return self.fixed + source * self.source + sum(part.width * self._room(tokens, part) for part in self.parts)

    def _room(self, tokens: int, part: Part) -> int:
        if part.window is not None:  # eviction is one block at a time
            tokens = min(tokens, part.window + BLOCK + self.at_once)
        tokens = tokens * 3 // 2 if part.grows else tokens
        return -(-tokens // BLOCK) * BLOCK


@torch.inference_mode()
def measure(model: Model, at_once: int = 1) -> Footprint:
    """Run a few tokens and measure the state: works for every architecture, dtype and packing.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> measure(model).bytes(256) == held_bytes(model.start(room=256)) + 2 * 4 * 256 * 64 * 2
    True
    """
    tokens = min(_TRIED, getattr(model.config, "context", None) or _TRIED)
    source = torch.zeros(1, 1, dtype=torch.long, device=model.device) if model.reads_source else None
    state = model.start(room=tokens, source=source)
    model.read([[0] * tokens], [state])
    if not isinstance(state, Cache):
        source_bytes = held_bytes(getattr(state, "source", None))
        return Footprint(held_bytes(state) - source_bytes, source_bytes, (), at_once)
    source_bytes = held_bytes(state.source) + sum(held_bytes(layer.source) for layer in state.layers)
    return Footprint(0, source_bytes, tuple(buffer for layer in state.layers for buffer in _parts(layer)), at_once)


def _parts(layer: LayerCache) -> list[Part]:
    assert layer.keys is not None
    width = held_bytes((layer.keys, layer.values)) // layer.keys.shape[2]
    shift_inputs = [trail.held for trail in layer.trails.values() if trail.held is not None]
    growing = [Part(held_bytes(tensor) // tensor.shape[1], grows=True) for tensor in shift_inputs]
    return [Part(width, layer.window, grows=layer.window is not None), *growing]
