"""How arrays are laid before a patient: which axes in which order, and how a mask is written."""

from dataclasses import dataclass

import numpy as np

from peasy.proof.doctor.variant import Array

BATCH, HEADS, KEY_HEADS, QUERIES, KEYS, WIDTH, LENGTH = 3, 4, 2, 5, 7, 6, 16
"""Sizes that cannot be taken for one another."""
MODEL = HEADS * WIDTH

FRAMES = {
    "bhtd": "heads outside: batch, head, time, width",
    "bthd": "heads inside: batch, time, head, width",
    "btd": "batch first: batch, time, width",
    "tbd": "time first: time, batch, width",
    "td": "one text, one head: time, width",
}
FLAT = {
    "btd": "batch first: batch, time, width of all heads",
    "tbd": "time first: time, batch, width of all heads",
    "td": "one text: time, width of all heads",
}


@dataclass(frozen=True)
class Frame:
    """An order of axes; `flat` = all heads side by side, so that the patient splits them itself."""

    axes: str
    flat: bool = False

    @property
    def says(self) -> str:
        """In words."""
        return FLAT[self.axes] if self.flat else FRAMES[self.axes]

    @property
    def batch(self) -> int:
        """How many texts fit in."""
        return BATCH if "b" in self.axes else 1

    @property
    def heads(self) -> int:
        """How many heads fit in."""
        return HEADS if self.flat or "h" in self.axes else 1

    def lay(self, array: Array) -> Array:
        """`[batch, head, time, width]`, or `[batch, time, width]`, in this order."""
        if array.ndim == 4 and "h" in self.axes:
            return array.swapaxes(1, 2) if self.axes == "bthd" else array
        array = array[:, 0] if array.ndim == 4 else array
        return {"btd": array, "tbd": array.swapaxes(0, 1), "td": array[0]}.get(self.axes, array)


SHAPES = {
    "b1qk": "batch, 1, query, key",
    "qk": "query, key",
    "bqk": "batch, query, key",
    "bk": "batch, key",
    "b11k": "batch, 1, 1, key",
}
KINDS = {
    "may": "True = may look",
    "hidden": "True = hidden",
    "added": "added to the scores: 0 = may look, -∞ = hidden",
    "ones": "1 = may look, 0 = hidden",
    "zeros": "1 = hidden, 0 = may look",
}


@dataclass(frozen=True)
class Form:
    """How a mask is written."""

    kind: str
    shape: str

    @property
    def says(self) -> str:
        """In words."""
        return f"mask: {KINDS[self.kind]}; {SHAPES[self.shape]}"

    def fitting(self, mask: Array) -> Array:
        """The part of a mask `[batch, 1, query, key]` that this shape can say: fewer axes say the same for all."""
        if self.shape == "qk":
            mask = np.broadcast_to(mask[:1], mask.shape)
        if "k" in self.shape and "q" not in self.shape:
            mask = np.broadcast_to(mask[:, :, :1], mask.shape)
        return mask

    def write(self, mask: Array) -> Array:
        """A mask as the patient gets it."""
        mask = self.fitting(mask)
        cut = {
            "b1qk": mask,
            "qk": mask[0, 0],
            "bqk": mask[:, 0],
            "bk": mask[:, 0, 0],
            "b11k": mask[:, :, :1],
        }[self.shape]
        if self.kind == "added":
            return np.where(cut, np.float32(0), np.float32(-np.inf))
        if self.kind in ("ones", "zeros"):
            return (cut if self.kind == "ones" else ~cut).astype(np.float32)
        return np.ascontiguousarray(cut if self.kind == "may" else ~cut)


def forms(frame: Frame, role: str, declared: str | None) -> list[Form]:
    """Forms to try, the commonest first; what the patient declares itself goes without the others."""
    kinds = {"may": ["may", "ones"], "hidden": ["hidden", "zeros"]}.get(declared or "", list(KINDS))
    if role == "padding":
        shapes = ["bk", "b11k"]
    elif frame.axes == "td":
        shapes = ["qk"]
    else:
        shapes = ["b1qk", "qk", "bqk", "bk", "b11k"] if frame.flat or "h" in frame.axes else ["bqk", "qk", "bk", "b1qk"]
    return [Form(kind, shape) for kind in kinds for shape in shapes]


class Numbers:
    """Seeded inputs: the same for the same seed, wherever they are drawn."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def array(self, name: str, *shape: int) -> Array:
        """Normal numbers, in 32 bits' precision."""
        drawn = self._draw(name).normal(0, 1, shape)
        return drawn.astype(np.float32).astype(np.float64)

    def mask(self, batch: int, queries: int, keys: int) -> Array:
        """True = may look, `[batch, 1, query, key]`; every row sees something and not everything."""
        mask = self._draw("mask").random((batch, 1, queries, keys)) < 0.6
        rows = np.arange(queries)
        mask[..., rows, rows % keys] = True
        mask[..., rows, (rows + 2) % keys] = False
        return mask

    def _draw(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *name.encode()])
