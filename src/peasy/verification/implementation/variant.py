"""Variants of the attention formula: what code with certain mistakes would compute. NumPy, float64.

`formula/` is the correct formula. A variant that reproduces the outputs of the code under test identifies its mistakes.
"""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Variant:
    """One variant: each field is a line of the formula; the defaults are correct, or a matter of convention.

    `causal`: None = bidirectional, 0 = causal, -1 = without the token itself, 1 = with the next token.
    `causal_alignment`: of the causal mask if there are more keys than queries: "end" (bottom-right) or "start".
    `rope`: rotary positions, by "halves" or "pairs".
    `offset_positions`: positions of new tokens follow the cached ones.
    """

    scale: str = "root"
    softmax_over: str = "keys"
    masking: str = "before"
    causal: int | None = None
    attends_ahead: bool = False
    causal_alignment: str = "end"
    keys_values_swapped: bool = False
    head_split: str = "right"
    head_merge: str = "right"
    group_order: str = "repeat"
    rope: str | None = None
    offset_positions: bool = True


@dataclass(frozen=True, eq=False)
class VariantInputs:
    """Inputs of a variant: `[batch, head, time, width]`, or with `flat_heads` `[batch, time, heads * width]`.

    `mask` True = may attend, `[batch, 1, query, key]`. `causal`: the target is called with its causal flag.
    The first `num_cached` keys come from a cache.
    """

    query: Array
    key: Array
    value: Array
    num_heads: int
    num_kv_heads: int
    flat_heads: bool = False
    merged_output: bool = False
    mask: Array | None = None
    causal: bool = False
    num_cached: int = 0


def compute_variant(variant: Variant, inputs: VariantInputs) -> tuple[Array, Array]:
    """Return (context, weights) of a variant; NaN in fully masked rows."""
    query = _split_heads(variant, inputs, inputs.query, inputs.num_heads)
    key, value = (_split_heads(variant, inputs, array, inputs.num_kv_heads) for array in (inputs.key, inputs.value))
    if variant.keys_values_swapped:
        key, value = value, key
    query, key = _rotate_query_key(variant, inputs, query, key)
    key, value = (_repeat_kv(variant, array, query.shape[1]) for array in (key, value))
    scores = query @ np.swapaxes(key, -1, -2)
    scaled = scores * _scale_factor(variant, query.shape[-1], inputs.num_heads)
    weights = _attention_weights(variant, scaled, _build_mask(variant, inputs, scores.shape))
    if variant.scale == "late":
        weights = weights / np.sqrt(query.shape[-1])
    return _merge_heads(variant, inputs, weights @ value), weights


def _split_heads(variant: Variant, inputs: VariantInputs, array: Array, heads: int) -> Array:
    if not inputs.flat_heads:
        return array
    batch, time, width = array.shape
    if variant.head_split == "reshape":
        return array.reshape(batch, heads, time, width // heads)
    return array.reshape(batch, time, heads, width // heads).swapaxes(1, 2)


def _merge_heads(variant: Variant, inputs: VariantInputs, context: Array) -> Array:
    if not (inputs.flat_heads or inputs.merged_output):
        return context
    batch, heads, time, width = context.shape
    ordered = context if variant.head_merge == "reshape" else context.swapaxes(1, 2)
    return ordered.reshape(batch, time, heads * width)


def _repeat_kv(variant: Variant, array: Array, num_heads: int) -> Array:
    count = num_heads // array.shape[1]
    if count <= 1:
        return array
    return np.tile(array, (1, count, 1, 1)) if variant.group_order == "tile" else np.repeat(array, count, axis=1)


def _scale_factor(variant: Variant, d_head: int, num_heads: int) -> float:
    powers = {"root": -0.5, "none": 0.0, "late": 0.0, "width": -1.0, "times": 0.5, "model": -0.5}
    width = d_head * num_heads if variant.scale == "model" else d_head
    return float(width ** powers[variant.scale])


def _build_mask(variant: Variant, inputs: VariantInputs, shape: tuple[int, ...]) -> Array | None:
    n_query, n_key = shape[-2:]
    mask = inputs.mask
    reach = variant.causal if variant.causal is not None else 0 if inputs.causal else None
    if reach is not None:
        first = n_key - n_query if variant.causal_alignment == "end" else 0
        distance = np.arange(n_query)[:, None] + first - np.arange(n_key)[None, :]
        causal_mask = distance <= 0 if variant.attends_ahead else distance >= -reach
        mask = causal_mask[None, None] if mask is None else mask & causal_mask
    return mask


def _attention_weights(variant: Variant, scaled: Array, mask: Array | None) -> Array:
    if mask is not None and variant.masking == "inverted":
        mask = ~mask
    if mask is None or variant.masking == "ignored":
        return _softmax(scaled, variant.softmax_over)
    if variant.masking == "after":
        return np.where(mask, _softmax(scaled, variant.softmax_over), 0.0)
    if variant.masking == "zeroed":
        return _softmax(np.where(mask, scaled, 0.0), variant.softmax_over)
    return _softmax(np.where(mask, scaled, -np.inf), variant.softmax_over)


def _softmax(array: Array, over: str) -> Array:
    axis = -1 if over == "keys" else -2
    with np.errstate(invalid="ignore"):
        powers = np.exp(array - array.max(axis=axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def _rotate_query_key(variant: Variant, inputs: VariantInputs, query: Array, key: Array) -> tuple[Array, Array]:
    if variant.rope is None:
        return query, key
    n_query, n_key = query.shape[2], key.shape[2]
    cached, new = np.arange(n_key)[: inputs.num_cached], np.arange(n_key)[inputs.num_cached :]
    if not variant.offset_positions:
        new = new - inputs.num_cached
    positions = np.concatenate([cached, new])
    return apply_rope(query, positions[n_key - n_query :], variant.rope), apply_rope(key, positions, variant.rope)


def apply_rope(array: Array, positions: Array, layout: str) -> Array:
    """Apply rotary positions: rotate each pair of channels by position times frequency."""
    half = array.shape[-1] // 2
    angle = positions[:, None] * 10_000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    if layout == "halves":
        left, right = array[..., :half], array[..., half:]
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    left, right = array[..., 0::2], array[..., 1::2]
    return np.stack([left * cos - right * sin, right * cos + left * sin], axis=-1).reshape(array.shape)


BATCH_SIZE, NUM_HEADS, NUM_KV_HEADS, NUM_QUERIES, NUM_KEYS, D_HEAD, MAX_SEQ_LEN = 3, 4, 2, 5, 7, 6, 16
"""Pairwise different, so that axes cannot be confused."""
D_MODEL = NUM_HEADS * D_HEAD

LAYOUTS = {
    "bhtd": "heads outside: batch, head, time, width",
    "bthd": "heads inside: batch, time, head, width",
    "btd": "batch first: batch, time, width",
    "tbd": "time first: time, batch, width",
    "td": "one sequence, one head: time, width",
}
FLAT_LAYOUTS = {
    "btd": "batch first: batch, time, width of all heads",
    "tbd": "time first: time, batch, width of all heads",
    "td": "one sequence: time, width of all heads",
}


@dataclass(frozen=True)
class TensorLayout:
    """Tensor layout; `flat_heads`: heads are concatenated, so that the target splits them itself."""

    axes: str
    flat_heads: bool = False

    @property
    def summary(self) -> str:
        """The layout as text."""
        return FLAT_LAYOUTS[self.axes] if self.flat_heads else LAYOUTS[self.axes]

    @property
    def batch_size(self) -> int:
        """Batch size in this layout."""
        return BATCH_SIZE if "b" in self.axes else 1

    @property
    def num_heads(self) -> int:
        """Number of heads in this layout."""
        return NUM_HEADS if self.flat_heads or "h" in self.axes else 1

    def arrange(self, array: Array) -> Array:
        """Rearrange `[batch, head, time, width]` or `[batch, time, width]` to this layout."""
        if array.ndim == 4 and "h" in self.axes:
            return array.swapaxes(1, 2) if self.axes == "bthd" else array
        array = array[:, 0] if array.ndim == 4 else array
        by_axes: dict[str, Array] = {"tbd": array.swapaxes(0, 1), "td": array[0]}
        return by_axes.get(self.axes, array)


_MASK_SHAPES = {
    "b1qk": "batch, 1, query, key",
    "qk": "query, key",
    "bqk": "batch, query, key",
    "bk": "batch, key",
    "b11k": "batch, 1, 1, key",
}
_MASK_KINDS = {
    "attend": "True = may attend",
    "masked": "True = masked",
    "additive": "added to the scores: 0 = may attend, -∞ = masked",
    "ones": "1 = may attend, 0 = masked",
    "zeros": "1 = masked, 0 = may attend",
}


@dataclass(frozen=True)
class MaskConvention:
    """Mask convention: meaning of the values, and shape."""

    kind: str
    shape: str

    @property
    def summary(self) -> str:
        """The convention as text."""
        return f"mask: {_MASK_KINDS[self.kind]}; {_MASK_SHAPES[self.shape]}"

    def restrict(self, mask: Array) -> Array:
        """Restrict a mask `[batch, 1, query, key]` to what this shape can represent; missing axes are broadcast."""
        if self.shape == "qk":
            mask = np.broadcast_to(mask[:1], mask.shape)
        if "k" in self.shape and "q" not in self.shape:
            mask = np.broadcast_to(mask[:, :, :1], mask.shape)
        return mask

    def encode(self, mask: Array) -> Array:
        """Encode a mask in this convention."""
        mask = self.restrict(mask)
        by_shape: dict[str, Array] = {
            "b1qk": mask, "qk": mask[0, 0], "bqk": mask[:, 0], "bk": mask[:, 0, 0], "b11k": mask[:, :, :1],
        }  # fmt: skip
        shaped = by_shape[self.shape]
        if self.kind == "additive":
            return np.where(shaped, np.float32(0), np.float32(-np.inf))
        if self.kind in ("ones", "zeros"):
            return (shaped if self.kind == "ones" else ~shaped).astype(np.float32)
        return np.ascontiguousarray(shaped if self.kind == "attend" else ~shaped)


def mask_conventions(layout: TensorLayout, role: str, declared: str | None) -> list[MaskConvention]:
    """Return the mask conventions to try, most common first; a declared meaning excludes the others."""
    kinds = {"attend": ["attend", "ones"], "masked": ["masked", "zeros"]}.get(declared or "", list(_MASK_KINDS))
    with_heads = layout.flat_heads or "h" in layout.axes
    shapes = ["b1qk", "qk", "bqk", "bk", "b11k"] if with_heads else ["bqk", "qk", "bk", "b1qk"]
    if role == "padding":
        shapes = ["bk", "b11k"]
    elif layout.axes == "td":
        shapes = ["qk"]
    return [MaskConvention(kind, shape) for kind in kinds for shape in shapes]


class SeededInputs:
    """Seeded inputs: each array depends only on the seed and its name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def array(self, name: str, *shape: int) -> Array:
        """Return normally distributed values, rounded to float32."""
        values = self._rng(name).normal(0, 1, shape)
        return values.astype(np.float32).astype(np.float64)

    def mask(self, batch: int, queries: int, keys: int) -> Array:
        """Return a random mask `[batch, 1, query, key]`, True = may attend; no row is all True or all False."""
        mask = self._rng("mask").random((batch, 1, queries, keys)) < 0.6
        rows = np.arange(queries)
        mask[..., rows, rows % keys] = True
        mask[..., rows, (rows + 2) % keys] = False
        return mask

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *name.encode()])
