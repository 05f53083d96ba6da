"""Interventions: interface for ablation and activation patching during a forward pass."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from peasy.nn.place import Place
from peasy.nn.sight import Sight, Visible
from peasy.nn.watch import Look


class Change:
    """Base class of interventions; a subclass overrides what it changes, the rest is left as it is.

    A tap captures the changed values: weights after an edge was cut, the residual stream after it was patched.
    """

    def hides(self, place: Place, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return True where attention is cut, `[head, query, key]`; the positions are those of the whole sequence."""
        return None

    def evens(self, place: Place) -> tuple[int, ...]:
        """Return the heads that attend uniformly to all unmasked keys."""
        return ()

    def context(self, place: Place, context: Tensor, queries: Tensor) -> Tensor:
        """Return the changed outputs of the heads, `[batch, head, query, d_value]`, before the output projection."""
        return context

    def stream(self, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
        """Return the changed residual stream ("residual") or sublayer output ("output"), `[batch, time, width]`."""
        return array


Edit = Change | Callable[[Place, Tensor], Tensor]
"""An intervention, or simply a function of a module path and the context of its heads."""


def edit_look(edit: Edit | None, place: Place, look: Look, sight: Sight) -> Look:
    """Apply an intervention to the inputs of attention: cut edges, make heads uniform."""
    if not isinstance(edit, Change):
        return look
    heads, n_key = look.query.shape[1], look.key.shape[2]
    keys = torch.arange(n_key, device=look.key.device) + max(sight.key.shape[1] - n_key, 0)
    cut, uniform = edit.hides(place, heads, sight.query[0], keys), edit.evens(place)
    if cut is not None:
        look = replace(look, visible=_without(look, cut))
    return _even(look, uniform) if uniform else look


def edit_row(
    edit: Edit | None, place: Place, row: int, real: Tensor | None, source: Tensor
) -> tuple[Tensor | None, bool]:
    """Apply an intervention to one query of a recurrent decoder: return key mask `[batch, key]` and uniform flag."""
    if not isinstance(edit, Change):
        return real, False
    keys = torch.arange(source.shape[1], device=source.device)
    cut = edit.hides(place, 1, torch.tensor([row], device=source.device), keys)
    if cut is not None:
        real = (source.new_ones(source.shape[:2], dtype=torch.bool) if real is None else real) & ~cut[:, 0]
    return real, 0 in edit.evens(place)


def edit_context(edit: Edit | None, place: Place, context: Tensor, queries: Tensor) -> Tensor:
    """Apply an intervention to the outputs of the heads; `query_positions` is `[batch or 1, query]`."""
    if edit is None:
        return context
    return edit.context(place, context, queries[0]) if isinstance(edit, Change) else edit(place, context)


def edit_stream(edit: Edit | None, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
    """Apply an intervention to the residual stream or a sublayer output."""
    return edit.stream(place, step, array, queries[0]) if isinstance(edit, Change) else array


def _without(look: Look, hidden: Tensor) -> Visible:
    mask = ~hidden[None]
    if look.visible.causal:
        mask = mask & torch.ones(look.query.shape[2], look.key.shape[2], dtype=torch.bool, device=mask.device).tril()
    elif look.visible.mask is not None:
        mask = mask & look.visible.mask
    return Visible(mask, look.visible.bias)


def _even(look: Look, heads: tuple[int, ...]) -> Look:
    """Set the scores of these heads to zero, so that all unmasked keys get the same weight."""
    query, bias = look.query.clone(), look.visible.bias
    query[:, list(heads)] = 0
    if bias is not None:
        bias = bias.clone()
        bias[:, list(heads)] = 0
    return replace(look, query=query, visible=replace(look.visible, bias=bias, _added={}))
