"""Attention masks: causal, sliding window, given. Boolean, True = may attend; aligned bottom-right."""

from functools import reduce
from operator import and_

import array_api_compat
import numpy as np

from peasy.errors import InvalidInput
from peasy.formula.arrays import check_broadcastable, to_common_namespace
from peasy.formula.step import Array, Namespace

Window = int | tuple[int | None, int | None]
"""Sliding window: `n` = keys fewer than n positions away; `(back, ahead)` = positions, None = no limit."""


def position_distances(xp: Namespace, n_query: int, n_key: int, device: object = None) -> Array:
    """Return query position minus key position, aligned bottom-right: `[query, key]`."""
    query_position = xp.arange(n_key - n_query, n_key, device=device)
    return query_position[:, None] - xp.arange(n_key, device=device)[None, :]


def causal_mask(xp: Namespace, n_query: int, n_key: int, device: object = None) -> Array:
    """Return the causal mask: a query may attend to its own position and earlier ones."""
    return position_distances(xp, n_query, n_key, device) >= 0


def combine_masks(
    xp: Namespace, query: Array, key: Array, mask: Array | None = None, bias: Array | None = None,
    is_causal: bool = False, window_size: Window | None = None,
) -> Array | None:  # fmt: skip
    """Combine all masks into one: the keys each query may attend to; None = all."""
    if not isinstance(is_causal, bool | np.bool_):
        raise InvalidInput(f"causal should be True or False, not {is_causal!r}.")
    n_query, n_key, device = query.shape[-2], key.shape[-2], array_api_compat.device(query)
    masks = []
    if is_causal:
        masks.append(causal_mask(xp, n_query, n_key, device))
    if window_size is not None:
        size = window_size
        back, ahead = size if isinstance(size, tuple | list) else (size - 1, size - 1)
        if any(bound is not None and bound < 0 for bound in (back, ahead)):
            raise InvalidInput(
                f"window should be a whole number above 0, or a pair (back, ahead), not {window_size!r}.",
                hint="window=3 attends at most 2 positions away; window=(3, 0) attends 3 back and none ahead.",
            )
        distance = position_distances(xp, n_query, n_key, device)
        anywhere = n_query + n_key
        masks.append(distance <= (anywhere if back is None else back))
        masks.append(distance >= -(anywhere if ahead is None else ahead))
    if mask is not None:
        masks.append(as_mask(query, mask, (*query.shape[:-1], n_key)))
    if bias is not None:
        check_broadcastable("bias", bias, (*query.shape[:-1], n_key))
        if bool(xp.any(bias == -xp.inf)):
            masks.append(bias != -xp.inf)
    return reduce(and_, masks) if masks else None


def as_mask(query: Array, mask: Array, scores_shape: tuple[int, ...], of_last_keys: bool = False) -> Array:
    """Return the mask in the query's library; raise if it is not boolean or not broadcastable to the scores.

    With `of_last_keys` it may have fewer columns than there are keys.
    """
    xp, (_, mask) = to_common_namespace(query=query, mask=mask)
    if not xp.isdtype(mask.dtype, "bool"):
        message = f"mask has dtype {mask.dtype}, not bool."
        raise InvalidInput(message, hint="Use True where a query may attend. Pass an additive mask as bias=.")
    if of_last_keys and mask.ndim and 0 < mask.shape[-1] < scores_shape[-1]:
        scores_shape = (*scores_shape[:-1], mask.shape[-1])
    check_broadcastable("mask", mask, scores_shape)
    return mask
