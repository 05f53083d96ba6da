"""An edit: what somebody changes on the way, to see what it does. Without one nothing here runs."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from peasy.nn.place import Place
from peasy.nn.sight import Sight, Visible
from peasy.nn.watch import Look


class Change:
    """Changes what passes by; a kind of change overrides what it touches, and the rest passes as it is.

    What a tap sees is what happened: weights after an edge was cut, a stream after it was changed.
    """

    def hides(self, place: Place, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        """True where a query may not look any more, `[head, query, key]`; `queries` and `keys` are places."""
        return None

    def evens(self, place: Place) -> tuple[int, ...]:
        """The heads that give every key they may look at the same weight."""
        return ()

    def context(self, place: Place, context: Tensor, queries: Tensor) -> Tensor:
        """What the heads found, `[batch, head, query, d_value]`, before they are joined."""
        return context

    def stream(self, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
        """The stream ("residual") or what a sublayer adds to it ("output"), `[batch, time, width]`."""
        return array


Edit = Change | Callable[[Place, Tensor], Tensor]
"""A change, or simply a function of a place and the context of its heads."""


def edit_look(edit: Edit | None, place: Place, look: Look, sight: Sight) -> Look:
    """The attention that will happen: edges cut, heads made even."""
    if not isinstance(edit, Change):
        return look
    heads, n_key = look.query.shape[1], look.key.shape[2]
    keys = torch.arange(n_key, device=look.key.device) + max(sight.key.shape[1] - n_key, 0)
    hidden, even = edit.hides(place, heads, sight.query[0], keys), edit.evens(place)
    if hidden is not None:
        look = replace(look, visible=_without(look, hidden))
    return _even(look, even) if even else look


def edit_row(
    edit: Edit | None, place: Place, row: int, real: Tensor | None, source: Tensor
) -> tuple[Tensor | None, bool]:
    """The same for a cell that looks once for each word: which keys are seen, `[batch, key]`, and is it made even."""
    if not isinstance(edit, Change):
        return real, False
    keys = torch.arange(source.shape[1], device=source.device)
    hidden = edit.hides(place, 1, torch.tensor([row], device=source.device), keys)
    if hidden is not None:
        real = (source.new_ones(source.shape[:2], dtype=torch.bool) if real is None else real) & ~hidden[:, 0]
    return real, 0 in edit.evens(place)


def edit_context(edit: Edit | None, place: Place, context: Tensor, queries: Tensor) -> Tensor:
    """What the heads found, after the edit; `queries` are their places, `[batch or 1, query]`."""
    if edit is None:
        return context
    return edit.context(place, context, queries[0]) if isinstance(edit, Change) else edit(place, context)


def edit_stream(edit: Edit | None, place: Place, step: str, array: Tensor, queries: Tensor) -> Tensor:
    """A step of the stream, after the edit."""
    return edit.stream(place, step, array, queries[0]) if isinstance(edit, Change) else array


def _without(look: Look, hidden: Tensor) -> Visible:
    seen = ~hidden[None]
    if look.visible.causal:
        seen = seen & torch.ones(look.query.shape[2], look.key.shape[2], dtype=torch.bool, device=seen.device).tril()
    elif look.visible.mask is not None:
        seen = seen & look.visible.mask
    return Visible(seen, look.visible.bias)


def _even(look: Look, heads: tuple[int, ...]) -> Look:
    """Scores of zero: every key that is seen weighs the same."""
    query, bias = look.query.clone(), look.visible.bias
    query[:, list(heads)] = 0
    if bias is not None:
        bias = bias.clone()
        bias[:, list(heads)] = 0
    return replace(look, query=query, visible=replace(look.visible, bias=bias, _added={}))
