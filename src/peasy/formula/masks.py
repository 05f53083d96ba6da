"""Who may look at whom. Masks are boolean, True = may look; the last query stands at the last key."""

from functools import reduce
from numbers import Integral
from operator import and_
from typing import Any

import array_api_compat

from peasy.errors import InvalidInput
from peasy.formula.arrays import gather
from peasy.formula.sizes import check_spreads
from peasy.formula.step import Array

Window = int | tuple[int | None, int | None]
"""How far a query may look: `n` = keys fewer than n places away; `(back, ahead)` = places, None = no limit."""


def distances(xp: Any, n_query: int, n_key: int, device: Any = None) -> Array:
    """How many places each key lies before each query, aligned bottom-right: `[query, key]`."""
    query_place = xp.arange(n_key - n_query, n_key, device=device)
    return query_place[:, None] - xp.arange(n_key, device=device)[None, :]


def causal(xp: Any, n_query: int, n_key: int, device: Any = None) -> Array:
    """Only look back: a query may look at itself and at what stands before it."""
    return distances(xp, n_query, n_key, device) >= 0


def window(xp: Any, n_query: int, n_key: int, size: Window, device: Any = None) -> Array:
    """Only look nearby."""
    back, ahead = _bounds(size)
    distance = distances(xp, n_query, n_key, device)
    allowed = xp.ones((n_query, n_key), dtype=xp.bool, device=device)
    if back is not None:
        allowed = allowed & (distance <= back)
    if ahead is not None:
        allowed = allowed & (distance >= -ahead)
    return allowed


def visible(
    xp: Any,
    query: Array,
    key: Array,
    mask: Array | None = None,
    bias: Array | None = None,
    only_back: bool = False,
    within: Window | None = None,
) -> Array | None:
    """Which keys each query may look at, from all that was said; None = all of them."""
    n_query, n_key, device = query.shape[-2], key.shape[-2], array_api_compat.device(query)
    said = []
    if only_back:
        said.append(causal(xp, n_query, n_key, device))
    if within is not None:
        said.append(window(xp, n_query, n_key, within, device))
    if mask is not None:
        said.append(as_mask(query, mask, (*query.shape[:-1], n_key)))
    if bias is not None:
        check_spreads("bias", bias, (*query.shape[:-1], n_key))
        if bool(xp.any(bias == -xp.inf)):
            said.append(bias != -xp.inf)
    return reduce(and_, said) if said else None


def as_mask(query: Array, mask: Any, scores: tuple[int, ...]) -> Array:
    """A boolean mask in the library of the query that can be laid over the scores, or an error that says why not."""
    xp, (_, mask) = gather(query=query, mask=mask)
    if not xp.isdtype(mask.dtype, "bool"):
        raise InvalidInput(
            f"mask holds {mask.dtype}, not True and False.",
            hint="True = may look. Numbers to be added go to bias=.",
        )
    check_spreads("mask", mask, scores)
    return mask


def _bounds(size: Window) -> tuple[int | None, int | None]:
    if isinstance(size, tuple | list) and len(size) == 2:
        back, ahead = size
    else:
        back = ahead = size - 1 if isinstance(size, Integral) else -1
    for bound in (back, ahead):
        if bound is not None and (not isinstance(bound, Integral) or bound < 0):
            raise InvalidInput(
                f"window should be a whole number above 0, or a pair (back, ahead), not {size!r}.",
                hint="window=3 looks at most 2 places away; window=(3, 0) looks 3 places back and none ahead.",
            )
    return back, ahead
