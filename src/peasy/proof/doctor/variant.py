"""Variants of the attention formula: what code with certain mistakes would compute. NumPy, float64.

`formula/` is the correct formula. A variant that reproduces the outputs of the code under test identifies its mistakes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Variant:
    """One variant: each field is a line of the formula; the defaults are correct, or a matter of convention.

    `causal`: None = bidirectional, 0 = causal, -1 = without the token itself, 1 = with the next token.
    `corner`: alignment of the causal mask if there are more keys than queries: "end" (bottom-right) or "start".
    `turn`: rotary positions, by "halves" or "pairs"; `shifted`: positions of new tokens follow the cached ones.
    """

    scale: str = "root"
    over: str = "keys"
    masking: str = "before"
    causal: int | None = None
    ahead: bool = False
    corner: str = "end"
    swapped: bool = False
    split: str = "right"
    merge: str = "right"
    groups: str = "repeat"
    turn: str | None = None
    shifted: bool = True


@dataclass(frozen=True, eq=False)
class Case:
    """Inputs of a variant: `[batch, head, time, width]`, or with `flat` `[batch, time, heads * width]`.

    `mask` True = may attend, `[batch, 1, query, key]`. `causal`: the target is called with its causal flag.
    The first `past` keys come from a cache.
    """

    query: Array
    key: Array
    value: Array
    heads: int
    key_heads: int
    flat: bool = False
    merged: bool = False
    mask: Array | None = None
    causal: bool = False
    past: int = 0


def compute(variant: Variant, case: Case) -> tuple[Array, Array]:
    """Return (context, weights) of a variant; NaN in fully masked rows."""
    query, key, value = (_heads(variant, case, part) for part in ("query", "key", "value"))
    if variant.swapped:
        key, value = value, key
    query, key = _turned(variant, case, query, key)
    key, value = (_shared(variant, array, query.shape[1]) for array in (key, value))
    scores = query @ np.swapaxes(key, -1, -2)
    scaled = scores * _factor(variant, query.shape[-1], case.heads)
    weights = _weigh(variant, scaled, _visible(variant, case, scores.shape))
    if variant.scale == "late":
        weights = weights / np.sqrt(query.shape[-1])
    return _merged(variant, case, weights @ value), weights


def _heads(variant: Variant, case: Case, part: str) -> Array:
    array, heads = getattr(case, part), case.heads if part == "query" else case.key_heads
    if not case.flat:
        return array
    batch, time, width = array.shape
    if variant.split == "reshape":
        return array.reshape(batch, heads, time, width // heads)
    return array.reshape(batch, time, heads, width // heads).swapaxes(1, 2)


def _merged(variant: Variant, case: Case, context: Array) -> Array:
    if not (case.flat or case.merged):
        return context
    batch, heads, time, width = context.shape
    ordered = context if variant.merge == "reshape" else context.swapaxes(1, 2)
    return ordered.reshape(batch, time, heads * width)


def _shared(variant: Variant, array: Array, heads: int) -> Array:
    count = heads // array.shape[1]
    if count <= 1:
        return array
    return np.tile(array, (1, count, 1, 1)) if variant.groups == "tile" else np.repeat(array, count, axis=1)


def _factor(variant: Variant, d_head: int, heads: int) -> float:
    factors: dict[str, Callable[[], float]] = {
        "root": lambda: d_head**-0.5,
        "none": lambda: 1.0,
        "late": lambda: 1.0,
        "width": lambda: 1.0 / d_head,
        "model": lambda: (d_head * heads) ** -0.5,
        "times": lambda: d_head**0.5,
    }
    return factors[variant.scale]()


def _visible(variant: Variant, case: Case, shape: tuple[int, ...]) -> Array | None:
    n_query, n_key = shape[-2:]
    mask = None if case.mask is None else case.mask
    reach = variant.causal if variant.causal is not None else 0 if case.causal else None
    if reach is not None:
        first = n_key - n_query if variant.corner == "end" else 0
        distance = np.arange(n_query)[:, None] + first - np.arange(n_key)[None, :]
        causal_mask = distance <= 0 if variant.ahead else distance >= -reach
        mask = causal_mask[None, None] if mask is None else mask & causal_mask
    return mask


def _weigh(variant: Variant, scaled: Array, seen: Array | None) -> Array:
    if seen is not None and variant.masking == "inverted":
        seen = ~seen
    if seen is None or variant.masking == "ignored":
        return _softmax(scaled, variant.over)
    if variant.masking == "after":
        return np.where(seen, _softmax(scaled, variant.over), 0.0)
    if variant.masking == "zeroed":
        return _softmax(np.where(seen, scaled, 0.0), variant.over)
    return _softmax(np.where(seen, scaled, -np.inf), variant.over)


def _softmax(array: Array, over: str) -> Array:
    axis = -1 if over == "keys" else -2
    with np.errstate(invalid="ignore"):
        powers = np.exp(array - array.max(axis=axis, keepdims=True))
        return powers / powers.sum(axis=axis, keepdims=True)


def _turned(variant: Variant, case: Case, query: Array, key: Array) -> tuple[Array, Array]:
    if variant.turn is None:
        return query, key
    n_query, n_key = query.shape[2], key.shape[2]
    cached, new = np.arange(n_key)[: case.past], np.arange(n_key)[case.past :]
    if not variant.shifted:
        new = new - case.past
    positions = np.concatenate([cached, new])
    return turn(query, positions[n_key - n_query :], variant.turn), turn(key, positions, variant.turn)


def turn(array: Array, places: Array, layout: str) -> Array:
    """Apply rotary positions: rotate each pair of channels by position times frequency."""
    half = array.shape[-1] // 2
    angle = places[:, None] * 10_000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    if layout == "halves":
        left, right = array[..., :half], array[..., half:]
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    left, right = array[..., 0::2], array[..., 1::2]
    return np.stack([left * cos - right * sin, right * cos + left * sin], axis=-1).reshape(array.shape)
