"""Memory footprint of a decode state, measured once so that requests can be admitted within a byte budget."""

from dataclasses import dataclass, fields, is_dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.kv_cache import BLOCK_TOKENS, KVCache, LayerKVCache

_PROBE_TOKENS = 32
"""Length of the measured pass; a recurrent state has reached its full size by then."""


def tensor_bytes(value: object) -> int:
    """Return the bytes of all tensors in nested lists, dicts and dataclasses.

    >>> tensor_bytes([torch.zeros(3), (torch.zeros(2, dtype=torch.int8), None)])
    14
    """
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(map(tensor_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(tensor_bytes, value))
    if is_dataclass(value) and not isinstance(value, type):
        return sum(tensor_bytes(getattr(value, field.name)) for field in fields(value))
    return 0


class _CacheBuffer(NamedTuple):
    """Bytes per token of one cache buffer; its capacity is allocated at once, or grows by half when full."""

    bytes_per_token: int
    window: int | None = None
    grows: bool = False


@dataclass(frozen=True)
class StateFootprint:
    """Bytes of one sequence's state: fixed, per source token, and per token of each cache buffer.

    `prefill_chunk`: most tokens per pass; a buffer with a window holds them beside the window.
    """

    fixed_bytes: int
    bytes_per_source_token: int
    buffers: tuple[_CacheBuffer, ...]
    prefill_chunk: int

    def max_bytes(self, tokens: int, source: int = 0) -> int:
        """Return the most bytes that a sequence of this length will hold, with a source of this length."""
        total = self.fixed_bytes + source * self.bytes_per_source_token
        for buffer in self.buffers:
            kept = tokens
            if buffer.window is not None:  # eviction is one block at a time
                kept = min(tokens, buffer.window + BLOCK_TOKENS + self.prefill_chunk)
            kept = kept * 3 // 2 if buffer.grows else kept
            total += buffer.bytes_per_token * (-(-kept // BLOCK_TOKENS) * BLOCK_TOKENS)
        return total


@torch.inference_mode()
def measure_footprint(model: Model, prefill_chunk: int = 1) -> StateFootprint:
    """Run a few tokens and measure the state: works for every architecture, dtype and packing.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> model = build(preset("gpt-tiny"), seed=1)
    >>> measure_footprint(model).max_bytes(256) == tensor_bytes(model.new_state(capacity=256)) + 2 * 4 * 256 * 64 * 2
    True
    """
    tokens = min(_PROBE_TOKENS, model.config.max_seq_len or _PROBE_TOKENS)
    source = torch.zeros(1, 1, dtype=torch.long, device=model.device) if model.is_encoder_decoder else None
    state = model.new_state(capacity=tokens, source=source)
    model.forward_varlen([[0] * tokens], [state])
    if not isinstance(state, KVCache):
        source_bytes = tensor_bytes(getattr(state, "encoder_output", None))
        return StateFootprint(tensor_bytes(state) - source_bytes, source_bytes, (), prefill_chunk)
    source_bytes = tensor_bytes(state.encoder_output) + sum(tensor_bytes(layer.cross_kv) for layer in state.layers)
    buffers = tuple(buffer for layer in state.layers for buffer in _buffers(layer))
    return StateFootprint(0, source_bytes, buffers, prefill_chunk)


def _buffers(layer: LayerKVCache) -> list[_CacheBuffer]:
    assert layer.keys is not None
    width = tensor_bytes((layer.keys, layer.values)) // layer.keys.shape[2]
    shift_inputs = [trail.buffer for trail in layer.token_shift_states.values() if trail.buffer is not None]
    growing = [_CacheBuffer(tensor_bytes(tensor) // tensor.shape[1], grows=True) for tensor in shift_inputs]
    return [_CacheBuffer(width, layer.window, grows=layer.window is not None), *growing]
