"""Prompts that begin alike are read once: pages of what was remembered, kept by the ids that led to them.

A page is found only by the very ids it was made from, all the way from the start of the text (and by the source, if
there is one): what is reused are the bits that reading again would give.
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
"""So many tokens make a page; only whole pages are shared."""

Ids = tuple[int, ...]
Key = tuple[int, Ids]
"""The number of the page before (0 = the text begins), and the ids of this one."""


@dataclass(frozen=True, eq=False)
class Page:
    """What some tokens left behind: keys and values of each layer, or the whole state after them."""

    number: int
    key: Key
    content: Any
    bytes: int


Chain = tuple[Page, ...]


class Prefixes:
    """Pages within a budget of bytes; those that were not of use the longest go first.

    A text is a chain of pages, the first one first. Whenever a chain is of use, its first page becomes the youngest of
    all and its last one the oldest of the chain: so the oldest page of all is always the end of a text.

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
        """The page of exactly these ids after that chain; the source of a text stands before its first page."""
        return self.pages.get(_key(chain, ids))

    def keep(self, chain: Chain, ids: Ids, content: Any) -> Chain | None:
        """The chain with one more page, what these ids left behind; None if it is broken or the page is too large."""
        size = held_bytes(content)
        if size > self.most or not all(self.pages.get(page.key) is page for page in chain):
            return None
        page = Page(next(self._numbers), _key(chain, ids), content, size)
        self.pages[page.key] = page
        self.bytes += size
        self.use((*chain, page))
        return (*chain, page)

    def use(self, chain: Chain) -> None:
        """These pages are of use now; what is over the budget goes."""
        for page in reversed(chain):
            if page.key in self.pages:
                self.pages.move_to_end(page.key)
        while self.bytes > self.most:
            _, oldest = self.pages.popitem(last=False)
            self.bytes -= oldest.bytes

    def clear(self) -> None:
        """Forget all."""
        self.pages.clear()
        self.bytes = 0


def _key(chain: Chain, ids: Ids) -> Key:
    return (chain[-1].number if chain else 0, ids)


def cut(memory: Any, start: int, end: int) -> Any | None:
    """What the tokens from `start` to `end` left behind; None where that cannot be told or is not finite.

    A state knows nothing of single tokens: it is the whole memory, and only as long as it ends there.
    """
    if not isinstance(memory, Cache):
        return memory.fork() if memory.length == end else None
    if memory.real is not None or any(layer.dropped > start for layer in memory.layers):
        return None
    page = [_cut_layer(layer, start, end) for layer in memory.layers]
    return page if all(_finite(numbers) for layer in page for numbers in layer.values()) else None


def _cut_layer(layer: LayerCache, start: int, end: int) -> dict[str, Tensor]:
    assert layer.keys is not None
    assert layer.values is not None
    where = slice(start - layer.dropped, end - layer.dropped)
    trails = {part: trail.held[:, start:end].clone() for part, trail in layer.trails.items() if trail.held is not None}
    return {"key": layer.keys[:, :, where].clone(), "value": layer.values[:, :, where].clone()} | trails


def paste(memory: Any, pages: Sequence[Any]) -> Any:
    """The memory as if the tokens of these pages had been read into it."""
    if not isinstance(memory, Cache):
        return pages[-1].fork()
    for number, layer in enumerate(memory.layers):
        parts = [page[number] for page in pages]
        layer.extend(*(torch.cat([part[name] for part in parts], dim=2) for name in ("key", "value")))
        for name in parts[0].keys() - {"key", "value"}:
            layer.trail(name).extend(torch.cat([part[name] for part in parts], dim=1))
    memory.length += sum(page[0]["key"].shape[2] for page in pages)
    return memory


def _finite(numbers: Tensor) -> bool:
    return bool(torch.isfinite(numbers.sum(dtype=torch.float64)))
