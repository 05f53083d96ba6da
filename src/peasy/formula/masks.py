"""Who may look at whom. Masks are boolean, True = may look; the last query stands at the last key."""

from peasy.formula.step import Array

Window = int | tuple[int | None, int | None]
"""How far a query may look: `n` = keys fewer than n places away; `(back, ahead)` = places, None = no limit."""


def distances(xp, n_query: int, n_key: int, device=None) -> Array:
    """How many places each key lies before each query, aligned bottom-right: `[query, key]`."""
    query_place = xp.arange(n_query, device=device) + (n_key - n_query)
    return query_place[:, None] - xp.arange(n_key, device=device)[None, :]


def causal(xp, n_query: int, n_key: int, device=None) -> Array:
    """Only look back: a query may look at itself and at what stands before it."""
    return distances(xp, n_query, n_key, device) >= 0


def window(xp, n_query: int, n_key: int, size: Window, device=None) -> Array:
    """Only look nearby."""
    back, ahead = (size - 1, size - 1) if isinstance(size, int) else size
    distance = distances(xp, n_query, n_key, device)
    allowed = xp.ones((n_query, n_key), dtype=xp.bool, device=device)
    if back is not None:
        allowed = allowed & (distance <= back)
    if ahead is not None:
        allowed = allowed & (distance >= -ahead)
    return allowed
