"""KV cache: keys and values of earlier tokens, so that each new token is computed once."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from peasy.errors import InvalidInput

BLOCK_TOKENS = 256
"""Tokens by which a buffer grows at a time."""


class ForwardOnlyState:
    """Base of the decoding states that keep too little to be rolled back: recurrent, convolutional, last tokens."""

    length: int

    def crop(self, length: int) -> None:
        """Raise if tokens would have to be dropped."""
        if length < self.length:
            raise InvalidInput("This state cannot be cropped.", hint="Run the shorter sequence from its start.")

    def fork(self) -> Self:
        """Return an independent copy; its tensors are never written to."""
        return copy(self)


@dataclass(eq=False)
class TokenShiftState:
    """Token-shift state of one part of a layer: its inputs of all tokens, `[batch, time, width]`.

    All are kept, because a sequence may be cropped to any length.
    """

    length: int = 0
    buffer: Tensor | None = None

    def extend(self, new: Tensor) -> Tensor:
        """Append new vectors; return all of them."""
        end = self.length + new.shape[1]
        if self.buffer is None or end > self.buffer.shape[1]:
            capacity = max(end, self.length + self.length // 2)
            self.buffer = _grown(self.buffer, self.length, new, 1, capacity)
        self.buffer[:, self.length : end] = new
        self.length = end
        return self.buffer[:, :end]

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        self.length = min(self.length, length)

    def fork(self) -> "TokenShiftState":
        """Return an independent copy."""
        return replace(self, buffer=None if self.buffer is None else self.buffer.clone())


@dataclass(eq=False)
class LayerKVCache:
    """KV cache of one layer: keys and values `[batch, kv_head, time, d_head]` in buffers that grow by blocks.

    With a sliding `window`, tokens outside of it are evicted; `num_evicted` counts them. `cross_kv` are keys and values
    of cross-attention. `token_shift_states` are by part of the layer.
    """

    window: int | None = None
    capacity: int = 0
    length: int = 0
    num_evicted: int = 0
    keys: Tensor | None = None
    values: Tensor | None = None
    cross_kv: tuple[Tensor, Tensor] | None = None
    token_shift_states: dict[str, TokenShiftState] = field(default_factory=dict)

    def token_shift_state(self, part: str) -> TokenShiftState:
        """Return the token-shift state of a part of the layer."""
        return self.token_shift_states.setdefault(part, TokenShiftState())

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values; return all that are kept."""
        new = key.shape[2]
        keys, values, end = self.reserve(new, key, value)
        keys.narrow(2, end - new, new).copy_(key)
        values.narrow(2, end - new, new).copy_(value)
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def reserve(self, num_new: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
        """Reserve `num_new` positions, to be written by the caller; return both buffers and the new length.

        `key` and `value` give shape, dtype and device of the buffers.
        """
        if self.window is not None and self.length >= self.window + BLOCK_TOKENS:
            for buffer in (self.keys, self.values):
                assert buffer is not None
                buffer[:, :, : self.window] = buffer[:, :, self.length - self.window : self.length].clone()
            self.num_evicted += self.length - self.window
            self.length = self.window
        end = self.length + num_new
        if self.keys is None or self.values is None or end > self.keys.shape[2]:
            self._grow(end, key, value)
        assert self.keys is not None
        assert self.values is not None
        self.length = end
        return self.keys, self.values, end

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        if self.window is not None and self.num_evicted and length < self.num_evicted + self.window - 1:
            message = f"A KV cache with a window of {self.window} cannot be cropped to {length} tokens."
            hint = f"The first {self.num_evicted} tokens were evicted; the next token would attend to some of them."
            raise InvalidInput(message, hint=hint)
        self.length = min(self.length, length - self.num_evicted)
        for state in self.token_shift_states.values():
            state.crop(length)

    def fork(self) -> "LayerKVCache":
        """Return an independent copy; cross-attention keys and values are never written to, so they are shared."""
        buffers = (self.keys, self.values)
        keys, values = (None if b is None else _grown(b, self.length, b, 2, b.shape[2]) for b in buffers)
        states = {part: state.fork() for part, state in self.token_shift_states.items()}
        return replace(self, keys=keys, values=values, token_shift_states=states)

    def _grow(self, end: int, key: Tensor, value: Tensor) -> None:
        old = 0 if self.keys is None else self.keys.shape[2]
        capacity = max(end, self.capacity if self.window is None else 0, old + old // 2)
        self.keys = _grown(self.keys, self.length, key, 2, capacity)
        self.values = _grown(self.values, self.length, value, 2, capacity)


def _grown(old: Tensor | None, length: int, like: Tensor, time: int, capacity: int) -> Tensor:
    """Return a buffer for `capacity` tokens along axis `time`, in whole blocks, with the first `length` of the old."""
    shape = list(like.shape)
    shape[time] = -(-capacity // BLOCK_TOKENS) * BLOCK_TOKENS
    buffer = like.new_empty(shape)
    if old is not None:
        buffer.narrow(time, 0, length).copy_(old.narrow(time, 0, length))
    return buffer


class KVBatch(NamedTuple):
    """Keys and values of one layer for all sequences of a pass.

    `new` are those of the new tokens, `[batch, kv_head, time, d_head]`, for a packed batch `[1, kv_head, all new
    tokens, d_head]`; a backend appends them to `caches`, one per sequence (none = the new ones are all there are).
    Cross-attention has only `encoder_kv`, one pair per sequence.
    """

    new: tuple[Tensor, Tensor] | None = None
    caches: Sequence[LayerKVCache] = ()
    encoder_kv: Sequence[tuple[Tensor, Tensor]] = ()

    def append(self, seq_lens: list[int]) -> Sequence[tuple[Tensor, Tensor]]:
        """Append the new keys and values; return all keys and values of each sequence."""
        if self.new is None:
            return self.encoder_kv
        if len(self.caches) < 2:
            return [self.caches[0].extend(*self.new) if self.caches else self.new]
        new = zip(*(array.split(seq_lens, dim=2) for array in self.new), strict=True)
        return [cache.extend(key, value) for cache, (key, value) in zip(self.caches, new, strict=True)]

    def reserve(self, seq_lens: Sequence[int]) -> list[tuple[Tensor, Tensor, int]]:
        """Return the buffers of each sequence and their length with the new tokens, which the caller writes."""
        if self.new is None or not self.caches:
            pairs = self.encoder_kv if self.new is None else [self.new]
            return [(key, value, key.shape[2]) for key, value in pairs]
        return [cache.reserve(n, *self.new) for cache, n in zip(self.caches, seq_lens, strict=True)]


@dataclass(eq=False)
class KVCache:
    """KV cache of a Transformer: one `LayerKVCache` per layer, padding mask, and encoder output if there is one.

    `padding_mask` is `[batch, time]`, None as long as there was no padding.
    """

    layers: list[LayerKVCache]
    length: int = 0
    padding_mask: Tensor | None = None
    encoder_output: Tensor | None = None
    encoder_padding_mask: Tensor | None = None

    @classmethod
    def empty(cls, windows: list[int | None], capacity: int = 0) -> "KVCache":
        """Create a cache for layers with these windows with an initial `capacity` in tokens."""
        return cls([LayerKVCache(window, capacity) for window in windows])

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        for layer in self.layers:
            layer.crop(length)
        self.length = min(self.length, length)
        if self.padding_mask is not None:
            self.padding_mask = self.padding_mask[:, :length]

    def fork(self) -> "KVCache":
        """Return an independent copy."""
        return replace(self, layers=[layer.fork() for layer in self.layers])


def extend_positions(
    cache: KVCache | None, batch: int, time: int, padding_mask: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Advance the cache by `time` tokens; return (query positions, key positions, padding mask of the keys).

    A token's position is the number of tokens before it, not counting padding: padding on either side changes nothing.
    """
    past = 0 if cache is None else cache.length
    if padding_mask is None and (cache is None or cache.padding_mask is None):
        if cache is not None:
            cache.length += time
        key = torch.arange(past + time, device=device)[None]
        return key[:, past:], key, None
    past_mask = torch.ones(batch, past, dtype=torch.bool, device=device)
    if cache is not None and cache.padding_mask is not None:
        past_mask = cache.padding_mask
    new_mask = torch.ones(batch, time, dtype=torch.bool, device=device) if padding_mask is None else padding_mask
    mask = torch.cat([past_mask, new_mask], dim=1)
    key = (mask.cumsum(dim=1) - 1).clamp(min=0)
    if cache is not None:
        cache.length, cache.padding_mask = past + time, mask
    return key[:, past:], key, mask
