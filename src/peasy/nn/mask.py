"""Attention masks and positions for one forward pass, built once per model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

_PositionBias = Callable[[Tensor], Tensor]
"""From distances `[batch or 1, query, key]` to a bias of the scores, `[batch or 1, head, query, key]`."""


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """Attention mask of one layer: a boolean mask (True = may attend), a bias of the scores, or only the causal flag.

    `causal` without a mask: as many keys as queries, each query attends to itself and to earlier keys. `key_range`:
    (causal, window) if the keys of each query are a range, which they are without padding and interventions.
    """

    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    key_range: tuple[bool, int | None] | None = None
    _additive: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False)

    @property
    def has_mask(self) -> bool:
        """True if any key is masked for any query."""
        return self.causal or self.mask is not None

    def sdpa_args(self, query: Tensor) -> tuple[Tensor | None, bool]:
        """Return the fused kernel's arguments: (additive mask or None, is_causal). Layers share the additive mask."""
        if self.bias is None and self.mask is None:
            return None, self.causal
        if query.dtype not in self._additive:
            mask, additive = self.boolean(query), self.bias
            if additive is None:
                assert mask is not None, "neither bias nor mask"
                additive = torch.zeros_like(mask)
            additive = additive.to(query.dtype)
            self._additive[query.dtype] = additive if mask is None else additive.masked_fill(~mask, -torch.inf)
        return self._additive[query.dtype], False

    def select(
        self, query: Tensor, rows: slice | Sequence[int], *, n_key: int | None = None, heads: Sequence[int] = ()
    ) -> "AttentionMask":
        """Return the mask for some rows of `query`, its first `n_key` keys (None = all) and some heads (none = all)."""
        mask, bias = self.mask, self.bias
        if heads:
            bias = None if bias is None else bias[:, list(heads)]
            if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:  # an intervention may mask single heads
                mask = mask[:, list(heads)]
        time = query.shape[2]
        if n_key is None and rows == tuple(range(time)):
            return AttentionMask(mask, bias, self.causal)
        at = rows if isinstance(rows, slice) else list(rows)
        if self.causal:  # only these rows: the full mask of a long sequence would not fit into memory
            positions = torch.arange(time, device=query.device)
            mask = positions[:n_key] <= positions[at][:, None]
        elif mask is not None:  # with one row, it is the same for all queries
            mask = mask[..., at if mask.shape[-2] > 1 else slice(None), :n_key]
        return AttentionMask(mask, None if bias is None else bias[..., at, :n_key])

    def boolean(self, query: Tensor) -> Tensor | None:
        """Return the mask as an array, True = may attend; None = every key."""
        time = query.shape[2]
        return torch.ones(time, time, dtype=torch.bool, device=query.device).tril() if self.causal else self.mask


@dataclass(eq=False)
class MaskSpec:
    """Positions of queries and keys, padding mask and causality, from which the masks of all layers are made.

    Positions are `[batch or 1, time]`; they differ between rows of a batch only if there is padding. `padding_mask` is
    `[batch, key]`, True = token (None = no padding). Without padding the last query is at the position of the last key.
    """

    query_positions: Tensor
    key_positions: Tensor
    causal: bool
    padding_mask: Tensor | None = None
    position_bias: _PositionBias | None = None
    _masks: dict[tuple[int | None, int | None], AttentionMask] = field(default_factory=dict, repr=False)

    def attention_mask(self, window: int | None, n_key: int) -> AttentionMask:
        """Return the mask over the last `n_key` keys; layers with the same arguments share one object."""
        # a symbolic size of an exported graph cannot be a dict key
        cache_key = window, None if n_key == self.key_positions.shape[1] else n_key
        if cache_key not in self._masks:
            self._masks[cache_key] = self._build(window, n_key)
        return self._masks[cache_key]

    def _build(self, window: int | None, n_key: int) -> AttentionMask:
        n_query = self.query_positions.shape[1]
        bias = None if self.position_bias is None else self.position_bias(self.distances(n_key))
        is_range = self.padding_mask is None and (self.causal or window is None)
        key_range = (self.causal, window) if is_range else None
        if self.padding_mask is None and (window is None or n_key <= window):
            if not self.causal or n_query == 1:
                return AttentionMask(bias=bias, key_range=key_range)
            if n_query == n_key:
                return AttentionMask(bias=bias, causal=True, key_range=key_range)
        return AttentionMask(self.boolean_mask(window, n_key), bias, key_range=key_range)

    def boolean_mask(self, window: int | None, n_key: int) -> Tensor:
        """Return the boolean mask `[batch or 1, 1, query, key]`, or with one row if it is the same for all queries."""
        if self.padding_mask is not None and not self.causal and window is None:
            return self.padding_mask[:, None, None, -n_key:]
        distance = self.distances(n_key)
        allowed = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if window is not None:
            allowed = allowed & (distance.abs() < window)
        if self.padding_mask is not None:
            allowed = allowed & self.padding_mask[:, None, -n_key:]
        return allowed[:, None]

    def previous_token_index(self) -> Tensor | None:
        """Return the key index of the previous token of each query, `[batch, query]`; -1 = none.

        None = no padding, so it is the key directly before.
        """
        if self.padding_mask is None:
            return None
        is_token = self.padding_mask.long()
        num_before = is_token.cumsum(dim=1) - is_token
        none = torch.full_like(is_token[:, :1], -1)
        index = (torch.ones_like(is_token).cumsum(dim=1) - 1).masked_fill(~self.padding_mask, -1)
        # padding goes into an extra, unread column
        position = torch.where(self.padding_mask, num_before, is_token.shape[1])
        index_of_position = torch.cat([none.expand_as(is_token), none], dim=1).scatter(1, position, index)
        previous = torch.where(num_before > 0, index_of_position.gather(1, (num_before - 1).clamp(min=0)), -1)
        return previous[:, -self.query_positions.shape[1] :]

    def distances(self, n_key: int) -> Tensor:
        """Return query position minus key position for the last `n_key` keys: `[batch or 1, query, key]`."""
        return self.query_positions[:, :, None] - self.key_positions[:, None, -n_key:]
