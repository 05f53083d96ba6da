"""Module path: the address of an activation in a model; plain data, no torch."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class ModulePath(NamedTuple):
    """Stack, layer and part (attention, feedforward, ...) of a module."""

    stack: str
    layer: int
    part: str


def part_name(part: str) -> str:
    """Return the name of a part as it is shown.

    >>> part_name("feedforward"), part_name("cross_attention")
    ('feed-forward', 'cross-attention')
    """
    return part.replace("_", "-").replace("feedforward", "feed-forward")


class Address(NamedTuple):
    """Address of an activation: module path and step, as in `Address("decoder", 2, "attention", "weights")`."""

    stack: str
    layer: int
    part: str
    step: str

    @property
    def path(self) -> ModulePath:
        """The module without the step."""
        return ModulePath(self.stack, self.layer, self.part)


@dataclass(frozen=True, eq=False)
class LayerTopK:
    """Top attention of one layer when one token was generated: `keys` and `weights` `[head, rank]`, largest first.

    `keys` are positions in the sequence, or in the source for cross-attention. `heads`: numbers of these heads.
    """

    path: ModulePath
    keys: np.ndarray
    weights: np.ndarray
    heads: tuple[int, ...] = ()
