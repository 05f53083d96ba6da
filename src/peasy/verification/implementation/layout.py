"""Tensor layouts (BHTD, BTHD, ...) and mask conventions to try on the code under test, and seeded inputs."""

from dataclasses import dataclass

import numpy as np

from peasy.verification.implementation.variant import Array

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
