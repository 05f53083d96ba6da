"""How well a key fits a query: dot product, cosine, scaled dot product, or the additive scoring of 2015."""

from dataclasses import dataclass
from typing import Protocol

from peasy.formula.step import Array


class Scoring(Protocol):
    """A way to score every query against every key."""

    @property
    def name(self) -> str: ...
    @property
    def tex(self) -> str: ...
    @property
    def says(self) -> str: ...

    def score(self, xp, query: Array, key: Array) -> Array:
        """One number for each query and key: `[..., query, key]`."""

    def scale(self, d_key: int) -> float:
        """What the scores are multiplied with when the caller names no scale."""


@dataclass(frozen=True)
class Dot:
    """The dot product as it is."""

    name: str = "dot"
    tex: str = r"Q K^{\top}"
    says: str = "Each query is multiplied with each key and summed: how well does this key fit this query?"

    def score(self, xp, query: Array, key: Array) -> Array:
        return query @ xp.matrix_transpose(key)

    def scale(self, d_key: int) -> float:
        return 1.0


@dataclass(frozen=True)
class ScaledDot(Dot):
    """The dot product, to be divided by the root of the key width."""

    name: str = "scaled-dot"

    def scale(self, d_key: int) -> float:
        return d_key**-0.5


@dataclass(frozen=True)
class Cosine(Dot):
    """The dot product of directions; a vector of length zero is similar to nothing."""

    name: str = "cosine"
    tex: str = r"\frac{\langle q_i, k_j \rangle}{\lVert q_i \rVert \, \lVert k_j \rVert}"
    says: str = (
        "The cosine of the angle between each query and each key: 1 for the same direction, 0 for a right angle."
    )

    def score(self, xp, query: Array, key: Array) -> Array:
        return super().score(xp, _direction(xp, query), _direction(xp, key))


@dataclass(frozen=True)
class Additive:
    """Additive attention (2015): v · tanh(q W + k U), with w and u `[d, hidden]` and v `[hidden]`."""

    w: Array
    u: Array
    v: Array
    name: str = "additive"
    tex: str = r"v^{\top} \tanh(W q_i + U k_j)"
    says: str = "Query and key are each mapped, added and bent by tanh; v sums the result up to one number."

    def score(self, xp, query: Array, key: Array) -> Array:
        mapped_query = (query @ self.w)[..., :, None, :]
        mapped_key = (key @ self.u)[..., None, :, :]
        return xp.sum(xp.tanh(mapped_query + mapped_key) * self.v, axis=-1)

    def scale(self, d_key: int) -> float:
        return 1.0


def _direction(xp, vectors: Array) -> Array:
    length = xp.sqrt(xp.sum(vectors * vectors, axis=-1, keepdims=True))
    return vectors / xp.where(length == 0, xp.ones_like(length), length)


SCORINGS: dict[str, Scoring] = {each.name: each for each in (Dot(), Cosine(), ScaledDot())}
