"""A place in a model: plain words and numbers, so that rooms without torch can name it."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where in a model: which stack, which layer of it, which part of the layer."""

    stack: str
    layer: int
    part: str
