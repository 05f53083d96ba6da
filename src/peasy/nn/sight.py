"""Sight: who may look at whom in one pass, and where everybody stands. Made once at the top of a model."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

Bias = Callable[[Tensor], Tensor]
"""From distances `[batch or 1, query, key]` to what is added to the scores, `[batch or 1, head, query, key]`."""


@dataclass(frozen=True, eq=False)
class Visible:
    """What one layer looks through: a boolean mask (True = may look), a bias of the scores, or the causal rule alone.

    `causal` without a mask means: as many keys as queries, each looks at itself and back.
    """

    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    _added: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False)

    @property
    def hides(self) -> bool:
        """Is anything hidden from anyone?"""
        return self.causal or self.mask is not None

    def for_kernel(self, query: Tensor) -> tuple[Tensor | None, bool]:
        """What the fused kernel takes: (numbers to add or None, is it plainly causal). Layers share the numbers."""
        if self.bias is None and self.mask is None:
            return None, self.causal
        if query.dtype not in self._added:
            self._added[query.dtype] = self._add_up(query)
        return self._added[query.dtype], False

    def pick(self, heads: tuple[int, ...], rows: tuple[int, ...], query: Tensor) -> "Visible":
        """The same for some heads and some rows of `query`."""
        bias = None if self.bias is None else self.bias[:, list(heads)]
        if rows == tuple(range(query.shape[2])):
            return Visible(self.mask, bias, self.causal)
        chosen = list(rows)
        mask = _rows(self.mask, chosen)
        if self.causal:  # only these rows: a long text has no room for the whole mask
            mask = torch.arange(query.shape[2], device=query.device) <= torch.tensor(rows, device=query.device)[:, None]
        return Visible(mask, None if bias is None else bias[..., chosen, :])

    def block(self, rows: slice, n_key: int, query: Tensor) -> "Visible":
        """The same for some rows of `query` in a row and the first `n_key` keys."""
        bias = None if self.bias is None else self.bias[..., rows, :n_key]
        if not self.causal:
            return Visible(_rows(self.mask, rows), bias)
        keys = torch.arange(n_key, device=query.device)
        return Visible(keys <= torch.arange(rows.start, rows.stop, device=query.device)[:, None], bias)

    def _whole_mask(self, query: Tensor) -> Tensor | None:
        if not self.causal:
            return self.mask
        time = query.shape[2]
        return torch.ones(time, time, dtype=torch.bool, device=query.device).tril()

    def _add_up(self, query: Tensor) -> Tensor:
        mask = self._whole_mask(query)
        if self.bias is None:
            assert mask is not None, "nothing to add up"
            return torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        bias = self.bias.to(query.dtype)
        return bias if mask is None else bias.masked_fill(~mask, -torch.inf)


@dataclass(eq=False)
class Sight:
    """Places of queries and keys, and which keys are real tokens.

    `query` and `key` are places `[batch or 1, time]`; they differ between rows of a batch only where there is
    padding, which `real` `[batch, key]` tells (None = no padding anywhere). Without padding the last query
    stands at the last key.
    """

    query: Tensor
    key: Tensor
    causal: bool
    real: Tensor | None = None
    bias: Bias | None = None
    _made: dict[tuple[int | None, int | None], Visible] = field(default_factory=dict, repr=False)

    def visible(self, window: int | None, n_key: int) -> Visible:
        """What the queries see of the last `n_key` keys; layers that ask the same get the same object."""
        asked = window, None if n_key == self.key.shape[1] else n_key  # a symbol of an exported graph cannot be a key
        if asked not in self._made:
            self._made[asked] = self._make(window, n_key)
        return self._made[asked]

    def _make(self, window: int | None, n_key: int) -> Visible:
        n_query = self.query.shape[1]
        bias = None if self.bias is None else self.bias(self.distances(n_key))
        if self.real is None and (window is None or n_key <= window):
            if not self.causal or n_query == 1:
                return Visible(bias=bias)
            if n_query == n_key:
                return Visible(bias=bias, causal=True)
        return Visible(self.mask(window, n_key), bias)

    def mask(self, window: int | None, n_key: int) -> Tensor:
        """True where a query may look: `[batch or 1, 1, query, key]`, or one row for all queries that see alike."""
        if self.real is not None and not self.causal and window is None:
            return self.real[:, None, None, -n_key:]
        distance = self.distances(n_key)
        allowed = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            allowed = allowed & (distance.abs() < window)
        if self.real is not None:
            allowed = allowed & self.real[:, None, -n_key:]
        return allowed[:, None]

    def before(self) -> Tensor | None:
        """Where among the keys the real token before each query lies, -1 = nowhere; None = right before it.

        `[batch, query]`, of all keys there are.
        """
        if self.real is None:
            return None
        one = self.real.long()
        earlier = one.cumsum(dim=1) - one  # how many real tokens come before
        end = torch.full_like(one[:, :1], -1)
        index = (torch.ones_like(one).cumsum(dim=1) - 1).masked_fill(~self.real, -1)
        place = torch.where(self.real, earlier, one.shape[1])  # padding goes where nobody asks
        stands = torch.cat([end.expand_as(one), end], dim=1).scatter(1, place, index)
        found = torch.where(earlier > 0, stands.gather(1, (earlier - 1).clamp(min=0)), -1)
        return found[:, -self.query.shape[1] :]

    def distances(self, n_key: int) -> Tensor:
        """How many places each of the last `n_key` keys lies before each query: `[batch or 1, query, key]`."""
        return self.query[:, :, None] - self.key[:, None, -n_key:]


def _rows(mask: Tensor | None, rows: list[int] | slice) -> Tensor | None:
    """Some rows of a mask; the one row of a mask that is alike for all queries is every row."""
    return mask if mask is None or mask.shape[-2] == 1 else mask[..., rows, :]
