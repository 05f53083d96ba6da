"""How well a key fits a query: dot product, cosine, scaled dot product, or the additive scoring of 2015."""

from dataclasses import dataclass
from typing import Any, Protocol

from peasy.errors import InvalidInput
from peasy.formula.arrays import gather, mismatch, project, times
from peasy.formula.axes import D_KEY, D_QUERY
from peasy.formula.step import Array


class Scoring(Protocol):
    """A way to score every query against every key."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def tex(self) -> str:
        """How it is written."""

    @property
    def says(self) -> str:
        """What it does, in one plain sentence."""

    @property
    def query_width(self) -> str:
        """The name of the query's last axis: `d_key` where query and key must have one width."""

    def score(self, xp: Any, query: Array, key: Array) -> Array:
        """One number for each query and key: `[..., query, key]`."""

    def scale(self, d_key: int) -> float:
        """What the scores are multiplied with when the caller names no scale."""


@dataclass(frozen=True)
class Dot:
    """The dot product as it is."""

    name: str = "dot"
    tex: str = r"Q K^{\top}"
    says: str = "Each query is multiplied with each key and summed: how well does this key fit this query?"
    query_width: str = D_KEY

    def score(self, xp: Any, query: Array, key: Array) -> Array:
        """Query times key, number by number, summed."""
        if query.shape[-1] != key.shape[-1]:
            raise mismatch(("query", "keyᵀ"), query.shape, (*key.shape[:-2], key.shape[-1], key.shape[-2]))
        return query @ xp.matrix_transpose(key)

    def scale(self, d_key: int) -> float:
        """None: the scores are taken as they are."""
        return 1.0


@dataclass(frozen=True)
class ScaledDot(Dot):
    """The dot product, to be divided by the root of the key width."""

    name: str = "scaled-dot"

    def scale(self, d_key: int) -> float:
        """One over the root of the key width."""
        return d_key**-0.5


@dataclass(frozen=True)
class Cosine(Dot):
    """The dot product of directions; a vector of length zero is similar to nothing."""

    name: str = "cosine"
    tex: str = r"\frac{\langle q_i, k_j \rangle}{\lVert q_i \rVert \, \lVert k_j \rVert}"
    says: str = (
        "The cosine of the angle between each query and each key: 1 for the same direction, 0 for a right angle."
    )

    def score(self, xp: Any, query: Array, key: Array) -> Array:
        """The dot product of the two directions."""
        return super().score(xp, _direction(xp, query), _direction(xp, key))


@dataclass(frozen=True, eq=False)
class Additive:
    """Additive attention (2015): v · tanh(q W + k U), with w and u `[d, hidden]` and v `[hidden]`.

    Query and key may have different widths; both are mapped to the hidden width.
    """

    w: Array
    u: Array
    v: Array
    name: str = "additive"
    tex: str = r"v^{\top} \tanh(W q_i + U k_j)"
    says: str = "Query and key are each mapped, added and bent by tanh; v sums the result up to one number."
    query_width: str = D_QUERY

    def score(self, xp: Any, query: Array, key: Array) -> Array:
        """Map, add, bend, sum up; the weights follow the query's kind of number."""
        _, (_, *weights) = gather(query=query, w=self.w, u=self.u, v=self.v)
        w, u, v = (xp.astype(each, query.dtype, copy=False) for each in weights)
        mapped_query, mapped_key = project(query, w, ("query", "w")), project(key, u, ("key", "u"))
        if not (w.ndim == u.ndim == 2 and v.ndim == 1 and w.shape[1] == u.shape[1] == v.shape[0]):
            raise InvalidInput(
                f"w is {times(w.shape)}, u is {times(u.shape)} and v is {times(v.shape)}: they share no hidden width.",
                hint="Give w and u the same number of columns, and v one number for each.",
            )
        return xp.tanh(mapped_query[..., :, None, :] + mapped_key[..., None, :, :]) @ v

    def scale(self, d_key: int) -> float:
        """None: the scores are taken as they are."""
        return 1.0


def _direction(xp: Any, vectors: Array) -> Array:
    """Vectors of length 1. Dividing by the largest number first keeps the squares within range."""
    vectors = vectors / _or_one(xp, xp.max(xp.abs(vectors), axis=-1, keepdims=True))
    squares = xp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors / xp.sqrt(_or_one(xp, squares))


def _or_one(xp: Any, numbers: Array) -> Array:
    return xp.where(numbers == 0, xp.ones_like(numbers), numbers)


SCORINGS: dict[str, Scoring] = {each.name: each for each in (Dot(), Cosine(), ScaledDot())}
