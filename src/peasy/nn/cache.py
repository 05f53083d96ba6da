"""The cache: keys and values of what was read already, so that each new token is computed once."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from peasy.errors import InvalidInput

BLOCK = 256
"""Room grows by so many tokens at a time."""


@dataclass(eq=False)
class Trail:
    """What one part of a layer read of every token, `[batch, time, width]`: the next token may ask for the one before.

    All of it is kept, because a text may be cropped to any length.
    """

    length: int = 0
    held: Tensor | None = None

    def extend(self, new: Tensor) -> Tensor:
        """Put new vectors at the end; get all of them."""
        end = self.length + new.shape[1]
        if self.held is None or end > self.held.shape[1]:
            room = -(-max(end, self.length + self.length // 2) // BLOCK) * BLOCK
            grown = new.new_empty(new.shape[0], room, new.shape[2])
            if self.held is not None:
                grown[:, : self.length] = self.held[:, : self.length]
            self.held = grown
        self.held[:, self.length : end] = new
        self.length = end
        return self.held[:, :end]

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        self.length = min(self.length, length)

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was."""
        self.held = None if self.held is None else self.held[rows]

    def fork(self) -> "Trail":
        """A copy that goes its own way."""
        return replace(self, held=None if self.held is None else self.held.clone())


@dataclass(eq=False)
class LayerCache:
    """Keys and values of one attention, `[batch, key_head, time, d_head]`, in room that grows by blocks.

    With a `window`, what no query can see any more is dropped: `dropped` tells how much is gone. `trails` are there
    where a part of the layer reads the token before as well, by the name of the part.
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
        """What this part of the layer has read."""
        return self.trails.setdefault(part, Trail())

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put new keys and values at the end; get all that are kept."""
        new = key.shape[2]
        keys, values, end = self.make_room(new, key, value)
        keys.narrow(2, end - new, new).copy_(key)
        values.narrow(2, end - new, new).copy_(value)
        return keys.narrow(2, 0, end), values.narrow(2, 0, end)

    def make_room(self, new: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
        """Room for so many more, which whoever asks fills: all keys and values with what is free, and where they end.

        `key` and `value` tell what they are like.
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
        """Forget everything after the first `length` tokens."""
        if self.window is not None and self.dropped and length < self.dropped + self.window - 1:
            raise InvalidInput(
                f"A cache with a window of {self.window} cannot go back to {length} tokens.",
                hint=f"It kept what comes after the first {self.dropped}, and the next token looks further back.",
            )
        self.length = min(self.length, length - self.dropped)
        for trail in self.trails.values():
            trail.crop(length)

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]
        if self.source is not None:
            self.source = (self.source[0][rows], self.source[1][rows])
        for trail in self.trails.values():
            trail.reorder(rows)

    def fork(self) -> "LayerCache":
        """A copy that goes its own way; what was computed from the source is never written, so both keep the same."""
        keys, values = (None if each is None else self._copied(each) for each in (self.keys, self.values))
        return replace(self, keys=keys, values=values, trails={part: t.fork() for part, t in self.trails.items()})

    def _copied(self, held: Tensor) -> Tensor:
        """What is filled of it, in as much room."""
        fresh = torch.empty_like(held)
        fresh.narrow(2, 0, self.length).copy_(held.narrow(2, 0, self.length))
        return fresh

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
        held = 0 if self.keys is None else self.keys.shape[2]
        room = max(end, self.room if self.window is None else 0, held + held // 2)
        room = -(-room // BLOCK) * BLOCK
        keys = key.new_empty(*key.shape[:2], room, key.shape[3])
        values = value.new_empty(*value.shape[:2], room, value.shape[3])
        if self.keys is not None and self.values is not None:
            keys[:, :, : self.length] = self.keys[:, :, : self.length]
            values[:, :, : self.length] = self.values[:, :, : self.length]
        self.keys, self.values = keys, values


@dataclass(eq=False)
class Cache:
    """What a Transformer remembers of a text: one `LayerCache` each layer, and where its tokens stand.

    `real` is `[batch, time]`, and None as long as there was no padding.
    """

    layers: list[LayerCache]
    length: int = 0
    real: Tensor | None = None
    source: Tensor | None = None
    source_real: Tensor | None = None

    @classmethod
    def empty(cls, windows: list[int | None], room: int = 0) -> "Cache":
        """A cache for layers with these windows, with room for so many tokens from the start."""
        return cls([LayerCache(window, room) for window in windows])

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
        for layer in self.layers:
            layer.crop(length)
        self.length = min(self.length, length)
        if self.real is not None:
            self.real = self.real[:, :length]

    def reorder(self, rows: Tensor) -> None:
        """Row i of the batch becomes what row `rows[i]` was: what beam search needs."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.real is not None:
            self.real = self.real[rows]
        if self.source is not None:
            self.source = self.source[rows]
        if self.source_real is not None:
            self.source_real = self.source_real[rows]

    def fork(self) -> "Cache":
        """The same memory once more, which goes its own way from here."""
        return replace(self, layers=[layer.fork() for layer in self.layers])

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it holds."""
        held = [t for layer in self.layers for t in (layer.keys, layer.values, *(layer.source or ()))]
        held += [trail.held for layer in self.layers for trail in layer.trails.values()]
        return sum(t.numel() * t.element_size() for t in held if t is not None)


def extend_places(
    cache: Cache | None, batch: int, time: int, real: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Where the new tokens and all tokens stand, and which are real: (query places, key places, real keys).

    A token's place is the number of real tokens before it, so padding on either side changes nothing.
    """
    past = 0 if cache is None else cache.length
    if real is None and (cache is None or cache.real is None):
        if cache is not None:
            cache.length += time
        key = torch.arange(past + time, device=device)[None]
        return key[:, past:], key, None
    before = torch.ones(batch, past, dtype=torch.bool, device=device)
    if cache is not None and cache.real is not None:
        before = cache.real
    now = torch.ones(batch, time, dtype=torch.bool, device=device) if real is None else real
    all_real = torch.cat([before, now], dim=1)
    key = (all_real.cumsum(dim=1) - 1).clamp(min=0)
    if cache is not None:
        cache.length, cache.real = past + time, all_real
    return key[:, past:], key, all_real
