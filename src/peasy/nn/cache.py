"""KV cache: keys and values of earlier tokens, so that each new token is computed once."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from peasy.errors import InvalidInput

BLOCK = 256
"""Tokens by which a buffer grows at a time."""


@dataclass(eq=False)
class Trail:
    """Token-shift state of one part of a layer: its inputs of all tokens, `[batch, time, width]`.

    All are kept, because a sequence may be cropped to any length.
    """

    length: int = 0
    held: Tensor | None = None

    def extend(self, new: Tensor) -> Tensor:
        """Append new vectors; return all of them."""
        end = self.length + new.shape[1]
        if self.held is None or end > self.held.shape[1]:
            capacity = -(-max(end, self.length + self.length // 2) // BLOCK) * BLOCK
            grown = new.new_empty(new.shape[0], capacity, new.shape[2])
            if self.held is not None:
                grown[:, : self.length] = self.held[:, : self.length]
            self.held = grown
        self.held[:, self.length : end] = new
        self.length = end
        return self.held[:, :end]

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        self.length = min(self.length, length)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""
        self.held = None if self.held is None else self.held[rows]

    def fork(self) -> "Trail":
        """Return an independent copy."""
        return replace(self, held=None if self.held is None else self.held.clone())


@dataclass(eq=False)
class LayerCache:
    """KV cache of one layer: keys and values `[batch, kv_head, time, d_head]` in buffers that grow by blocks.

    With a sliding `window`, tokens outside of it are evicted; `num_evicted` counts them. `cross_kv` are keys and values
    of cross-attention. `token_shift_states` are by part of the layer.
    """

    window: int | None = None
    room: int = 0
    length: int = 0
    dropped: int = 0
    keys: Tensor | None = None
    values: Tensor | None = None
    source: tuple[Tensor, Tensor] | None = None
    trails: dict[str, Trail] = field(default_factory=dict)

    def trail(self, part: str) -> Trail:
        """Return the token-shift state of a part of the layer."""
        return self.trails.setdefault(part, Trail())

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values; return all that are kept."""
        new = key.shape[2]
        keys, values, end = self.make_room(new, key, value)
        keys.narrow(2, end - new, new).copy_(key)
        values.narrow(2, end - new, new).copy_(value)
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def make_room(self, new: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
        """Reserve `num_new` positions, to be written by the caller; return both buffers and the new length.

        `key` and `value` give shape, dtype and device of the buffers.
        """
        self._forget()
        end = self.length + new
        if self.keys is None or self.values is None or end > self.keys.shape[2]:
            self._grow(end, key, value)
        assert self.keys is not None
        assert self.values is not None
        self.length = end
        return self.keys, self.values, end

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        if self.window is not None and self.dropped and length < self.dropped + self.window - 1:
            raise InvalidInput(
                f"A KV cache with a window of {self.window} cannot be cropped to {length} tokens.",
                hint=f"The first {self.dropped} tokens were evicted, but the next token would attend to some of them.",
            )
        self.length = min(self.length, length - self.dropped)
        for state in self.trails.values():
            state.crop(length)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch: row i becomes the former row `rows[i]`."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
        if self.source is not None:
            self.source = (self.source[0][rows], self.source[1][rows])
        for state in self.trails.values():
            state.reorder(rows)

    def fork(self) -> "LayerCache":
        """Return an independent copy; cross-attention keys and values are never written to, so they are shared."""
        keys, values = (None if buffer is None else self._copied(buffer) for buffer in (self.keys, self.values))
        states = {part: state.fork() for part, state in self.trails.items()}
        return replace(self, keys=keys, values=values, trails=states)

    def _copied(self, held: Tensor) -> Tensor:
        """Copy the filled part of a buffer into a new one of the same size."""
        copy = torch.empty_like(held)
        copy.narrow(2, 0, self.length).copy_(held.narrow(2, 0, self.length))
        return copy

    def _forget(self) -> None:
        if self.window is None or self.length < self.window + BLOCK:
            return
        assert self.keys is not None
        assert self.values is not None
        kept = slice(self.length - self.window, self.length)
        self.keys[:, :, : self.window] = self.keys[:, :, kept].clone()
        self.values[:, :, : self.window] = self.values[:, :, kept].clone()
        self.dropped += self.length - self.window
        self.length = self.window

    def _grow(self, end: int, key: Tensor, value: Tensor) -> None:
        old = 0 if self.keys is None else self.keys.shape[2]
        capacity = max(end, self.room if self.window is None else 0, old + old // 2)
        capacity = -(-capacity // BLOCK) * BLOCK
        keys = key.new_empty(*key.shape[:2], capacity, key.shape[3])
        values = value.new_empty(*value.shape[:2], capacity, value.shape[3])
        if self.keys is not None and self.values is not None:
            keys[:, :, : self.length] = self.keys[:, :, : self.length]
            values[:, :, : self.length] = self.values[:, :, : self.length]
        self.keys, self.values = keys, values


@dataclass(eq=False)
class Cache:
    """KV cache of a Transformer: one `LayerKVCache` per layer, padding mask, and encoder output if there is one.

    `padding_mask` is `[batch, time]`, None as long as there was no padding.
    """

    layers: list[LayerCache]
    length: int = 0
    real: Tensor | None = None
    source: Tensor | None = None
    source_real: Tensor | None = None

    @classmethod
    def empty(cls, windows: list[int | None], room: int = 0) -> "Cache":
        """Create a cache for layers with these windows with an initial `capacity` in tokens."""
        return cls([LayerCache(window, room) for window in windows])

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        for layer in self.layers:
            layer.crop(length)
        self.length = min(self.length, length)
        if self.real is not None:
            self.real = self.real[:, :length]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the batch for beam search: row i becomes the former row `rows[i]`."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.real is not None:
            self.real = self.real[rows]
        if self.source is not None:
            self.source = self.source[rows]
        if self.source_real is not None:
            self.source_real = self.source_real[rows]

    def fork(self) -> "Cache":
        """Return an independent copy."""
        return replace(self, layers=[layer.fork() for layer in self.layers])

    @property
    def nbytes(self) -> int:
        """Size of all buffers in bytes."""
        buffers = [t for layer in self.layers for t in (layer.keys, layer.values, *(layer.source or ()))]
        buffers += [state.held for layer in self.layers for state in layer.trails.values()]
        return sum(t.numel() * t.element_size() for t in buffers if t is not None)


def extend_places(
    cache: Cache | None, batch: int, time: int, real: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Advance the cache by `time` tokens; return (query positions, key positions, padding mask of the keys).

    A token's position is the number of tokens before it, not counting padding: padding on either side changes nothing.
    """
    past = 0 if cache is None else cache.length
    if real is None and (cache is None or cache.real is None):
        if cache is not None:
            cache.length += time
        key = torch.arange(past + time, device=device)[None]
        return key[:, past:], key, None
    past_mask = torch.ones(batch, past, dtype=torch.bool, device=device)
    if cache is not None and cache.real is not None:
        past_mask = cache.real
    new_mask = torch.ones(batch, time, dtype=torch.bool, device=device) if real is None else real
    mask = torch.cat([past_mask, new_mask], dim=1)
    key = (mask.cumsum(dim=1) - 1).clamp(min=0)
    if cache is not None:
        cache.length, cache.real = past + time, mask
    return key[:, past:], key, mask
