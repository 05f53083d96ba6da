"""Module path: the address of an activation in a model; plain data, no torch."""

from typing import NamedTuple


class ModulePath(NamedTuple):
    """Stack, layer and part (attention, feedforward, ...) of a module."""

    stack: str
    layer: int
    part: str
