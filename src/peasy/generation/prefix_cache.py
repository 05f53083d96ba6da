"""Prefix cache: pages of KV cache (or recurrent state), shared by prompts with the same prefix; LRU eviction.

A page is found only by exactly the ids it was computed from, back to the start of the sequence (and the source, if
any), so reuse gives the same bits as recomputation.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from peasy.generation.footprint import tensor_bytes
from peasy.models.protocol import DecodeState
from peasy.nn.kv_cache import KVCache, LayerKVCache

_PageIds = tuple[int, ...]
_PageKey = tuple[int, _PageIds]
"""Id of the previous page (0 = start of the sequence), and the token ids of this page."""

_PageContent = list[dict[str, Tensor]] | DecodeState
"""Keys and values of each layer for the tokens of a page, or the whole recurrent state after them."""


@dataclass(frozen=True, eq=False)
class _PrefixPage:
    page_id: int
    key: _PageKey
    content: _PageContent
    nbytes: int


PageChain = tuple[_PrefixPage, ...]


class PrefixCache:
    """LRU cache of pages within a byte budget.

    A sequence is a chain of pages. When a chain is used, its first page becomes the most recent of all and its last
    page the least recent of the chain, so that eviction always removes the end of a chain.

    >>> cache = PrefixCache(max_bytes=1000)
    >>> chain = cache.insert((), (1, 2), torch.zeros(10))
    >>> cache.find((), (1, 2)) is chain[0], cache.find((), (2, 1)), cache.find(chain, (1, 2))
    (True, None, None)
    >>> cache.nbytes
    40
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.nbytes = max_bytes, 0
        self.pages: OrderedDict[_PageKey, _PrefixPage] = OrderedDict()
        self._page_ids = count(1)

    def find(self, chain: PageChain, ids: _PageIds) -> _PrefixPage | None:
        """Return the page of exactly these ids after that chain; an encoded source is the page before the first."""
        return self.pages.get(_key(chain, ids))

    def insert(self, chain: PageChain, ids: _PageIds, content: _PageContent) -> PageChain | None:
        """Store a page; return the extended chain, or None if a page of it was evicted or the page is too large."""
        size = tensor_bytes(content)
        if size > self.max_bytes or not all(self.pages.get(page.key) is page for page in chain):
            return None
        page = _PrefixPage(next(self._page_ids), _key(chain, ids), content, size)
        self.pages[page.key] = page
        self.nbytes += size
        self.touch((*chain, page))
        return (*chain, page)

    def touch(self, chain: PageChain) -> None:
        """Mark these pages as used and evict the oldest pages above the budget."""
        for page in reversed(chain):
            if page.key in self.pages:
                self.pages.move_to_end(page.key)
        while self.nbytes > self.max_bytes:
            _, oldest = self.pages.popitem(last=False)
            self.nbytes -= oldest.nbytes

    def clear(self) -> None:
        """Remove all pages."""
        self.pages.clear()
        self.nbytes = 0


def _key(chain: PageChain, ids: _PageIds) -> _PageKey:
    return (chain[-1].page_id if chain else 0, ids)


def extract(state: DecodeState, start: int, end: int) -> _PageContent | None:
    """Copy the state of the tokens from `start` to `end`; None if it is not available or not finite.

    A recurrent state cannot be split by token: it is copied whole, and only if it ends at `end`.
    """
    if not isinstance(state, KVCache):
        return state.fork() if state.length == end else None
    if state.padding_mask is not None or any(layer.num_evicted > start for layer in state.layers):
        return None
    page = [_extract_layer(layer, start, end) for layer in state.layers]
    return page if all(_is_finite(tensor) for layer in page for tensor in layer.values()) else None


def _extract_layer(layer: LayerKVCache, start: int, end: int) -> dict[str, Tensor]:
    assert layer.keys is not None
    assert layer.values is not None
    span = slice(start - layer.num_evicted, end - layer.num_evicted)
    shifts = {
        part: trail.buffer[:, start:end].clone()
        for part, trail in layer.token_shift_states.items()
        if trail.buffer is not None
    }
    return {"key": layer.keys[:, :, span].clone(), "value": layer.values[:, :, span].clone()} | shifts


def restore(state: DecodeState, pages: Sequence[_PageContent]) -> DecodeState:
    """Return the state as if the tokens of these pages had been computed into it."""
    layered = [page for page in pages if isinstance(page, list)]
    if not isinstance(state, KVCache):
        assert not isinstance(pages[-1], list)
        return pages[-1].fork()
    for index, layer in enumerate(state.layers):
        layer_pages = [page[index] for page in layered]
        layer.extend(*(torch.cat([page[name] for page in layer_pages], dim=2) for name in ("key", "value")))
        for name in layer_pages[0].keys() - {"key", "value"}:
            layer.token_shift_state(name).extend(torch.cat([page[name] for page in layer_pages], dim=1))
    state.length += sum(page[0]["key"].shape[2] for page in layered)
    return state


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor.sum(dtype=torch.float64)))
