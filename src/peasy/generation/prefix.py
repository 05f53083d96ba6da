"""Prefix cache: pages of KV cache (or recurrent state), shared by prompts with the same prefix; LRU eviction.

A page is found only by exactly the ids it was computed from, back to the start of the sequence (and the source, if
any), so reuse gives the same bits as recomputation.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor

from peasy.generation.footprint import held_bytes
from peasy.nn.cache import Cache, LayerCache

PAGE = 32
"""Tokens per page; only whole pages are shared."""

Ids = tuple[int, ...]
Key = tuple[int, Ids]
"""Id of the previous page (0 = start of the sequence), and the token ids of this page."""


@dataclass(frozen=True, eq=False)
class Page:
    """Cached page: keys and values of each layer for its tokens, or the whole recurrent state after them."""

    number: int
    key: Key
    content: Any
    bytes: int


Chain = tuple[Page, ...]


class Prefixes:
    """LRU cache of pages within a byte budget.

    A sequence is a chain of pages. When a chain is used, its first page becomes the most recent of all and its last
    page the least recent of the chain, so that eviction always removes the end of a chain.

    >>> prefixes = Prefixes(most=1000)
    >>> chain = prefixes.keep((), (1, 2), torch.zeros(10))
    >>> prefixes.find((), (1, 2)) is chain[0], prefixes.find((), (2, 1)), prefixes.find(chain, (1, 2))
    (True, None, None)
    >>> prefixes.bytes
    40
    """

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self.pages: OrderedDict[Key, Page] = OrderedDict()
        self._numbers = count(1)

    def find(self, chain: Chain, ids: Ids) -> Page | None:
        """Return the page of exactly these ids after that chain; an encoded source is the page before the first."""
        return self.pages.get(_key(chain, ids))

    def keep(self, chain: Chain, ids: Ids, content: Any) -> Chain | None:
        """Store a page; return the extended chain, or None if a page of it was evicted or the page is too large."""
        size = held_bytes(content)
        if size > self.most or not all(self.pages.get(page.key) is page for page in chain):
            return None
        page = Page(next(self._numbers), _key(chain, ids), content, size)
        self.pages[page.key] = page
        self.bytes += size
        self.use((*chain, page))
        return (*chain, page)

    def use(self, chain: Chain) -> None:
        """Mark these pages as used and evict the oldest pages above the budget."""
        for page in reversed(chain):
            if page.key in self.pages:
                self.pages.move_to_end(page.key)
        while self.bytes > self.most:
            _, oldest = self.pages.popitem(last=False)
            self.bytes -= oldest.bytes

    def clear(self) -> None:
        """Remove all pages."""
        self.pages.clear()
        self.bytes = 0


def _key(chain: Chain, ids: Ids) -> Key:
    return (chain[-1].number if chain else 0, ids)


def cut(memory: Any, start: int, end: int) -> Any | None:
    """Copy the state of the tokens from `start` to `end`; None if it is not available or not finite.

    A recurrent state cannot be split by token: it is copied whole, and only if it ends at `end`.
    """
    if not isinstance(memory, Cache):
        return memory.fork() if memory.length == end else None
    if memory.real is not None or any(layer.dropped > start for layer in memory.layers):
        return None
    page = [_cut_layer(layer, start, end) for layer in memory.layers]
    return page if all(_finite(tensor) for layer in page for tensor in layer.values()) else None


def _cut_layer(layer: LayerCache, start: int, end: int) -> dict[str, Tensor]:
    assert layer.keys is not None
    assert layer.values is not None
    span = slice(start - layer.dropped, end - layer.dropped)
    shifts = {part: trail.held[:, start:end].clone() for part, trail in layer.trails.items() if trail.held is not None}
    return {"key": layer.keys[:, :, span].clone(), "value": layer.values[:, :, span].clone()} | shifts


def paste(memory: Any, pages: Sequence[Any]) -> Any:
    """Return the state as if the tokens of these pages had been computed into it."""
    if not isinstance(memory, Cache):
        return pages[-1].fork()
    for index, layer in enumerate(memory.layers):
        layer_pages = [page[index] for page in pages]
        layer.extend(*(torch.cat([page[name] for page in layer_pages], dim=2) for name in ("key", "value")))
        for name in layer_pages[0].keys() - {"key", "value"}:
            layer.trail(name).extend(torch.cat([page[name] for page in layer_pages], dim=1))
    memory.length += sum(page[0]["key"].shape[2] for page in pages)
    return memory


def _finite(numbers: Tensor) -> bool:
    return bool(torch.isfinite(numbers.sum(dtype=torch.float64)))
