"""Scores of queries and keys (dot product, scaled, cosine, additive), and their normalisation to weights.

A row of scores becomes weights by softmax, division by the sum, or as it is. Masked keys get weight zero.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from peasy.errors import InvalidInput
from peasy.formula.arrays import format_shape, project, shape_mismatch, to_common_dtype
from peasy.formula.step import D_KEY, D_QUERY, Array, Namespace
from peasy.parameters import Record


class Scoring(ABC):
    """Scoring function of queries against keys: name, formula in TeX, description in one sentence."""

    name: str
    tex: str
    description: str
    query_width = D_KEY
    """Name of the query's last axis: `d_key` if query and key must have the same width."""

    @abstractmethod
    def score(self, xp: Namespace, query: Array, key: Array) -> Array:
        """Return the scores `[..., query, key]`."""

    def scale(self, d_key: int) -> float:
        """Return the default scale of the scores: 1, unscaled."""
        return 1.0


class DotProduct(Scoring):
    """Dot-product scoring, unscaled."""

    name = "dot"
    tex = r"Q K^{\top}"
    description = "The dot product of each query with each key: how well does this key match this query?"

    def score(self, xp: Namespace, query: Array, key: Array) -> Array:
        """Return the dot products of queries and keys."""
        if query.shape[-1] != key.shape[-1]:
            raise shape_mismatch(("query", "keyᵀ"), query.shape, (*key.shape[:-2], key.shape[-1], key.shape[-2]))
        return query @ xp.matrix_transpose(key)


class ScaledDotProduct(DotProduct):
    """Scaled dot-product scoring: divided by sqrt(d_key)."""

    name = "scaled-dot"

    def scale(self, d_key: int) -> float:
        """Return 1/sqrt(d_key)."""
        return float(d_key**-0.5)


class CosineSimilarity(DotProduct):
    """Cosine-similarity scoring; a zero vector has similarity 0."""

    name = "cosine"
    tex = r"\frac{\langle q_i, k_j \rangle}{\lVert q_i \rVert \, \lVert k_j \rVert}"
    description = (
        "The cosine of the angle between each query and each key: 1 for the same direction, 0 for a right angle."
    )

    def score(self, xp: Namespace, query: Array, key: Array) -> Array:
        """Return the cosine similarities of queries and keys."""
        return super().score(xp, _unit_vectors(xp, query), _unit_vectors(xp, key))


class Additive(Scoring, Record, eq=False):
    """Additive (Bahdanau, 2015) scoring: v · tanh(q W + k U), with w and u `[d, hidden]` and v `[hidden]`.

    Query and key may have different widths; both are projected to the hidden width.

    >>> from peasy import attend
    >>> attend([[1.0]], [[1.0], [0.0]], [[5.0], [7.0]], scoring=Additive([[1.0]], [[1.0]], [1.0])).weights.round(2)
    array([[0.55, 0.45]])
    """

    w: Array
    u: Array
    v: Array
    name = "additive"
    tex = r"v^{\top} \tanh(W q_i + U k_j)"
    description = "Query and key are projected and added; tanh is applied, and the dot product with v gives one number."
    query_width = D_QUERY

    def score(self, xp: Namespace, query: Array, key: Array) -> Array:
        """Return the additive scores; the weights are converted to the query's dtype."""
        if any(weight is None for weight in (self.w, self.u, self.v)):
            raise InvalidInput("w, u and v are needed.", hint="Use arrays, or nested lists of numbers.")
        _, (_, *weights) = to_common_dtype(query=query, w=self.w, u=self.u, v=self.v)
        w, u, v = (xp.astype(weight, query.dtype, copy=False) for weight in weights)
        projected_query, projected_key = project(query, w, ("query", "w")), project(key, u, ("key", "u"))
        if not (w.ndim == u.ndim == 2 and v.ndim == 1 and w.shape[1] == u.shape[1] == v.shape[0]):
            shapes = [format_shape(weight.shape) for weight in (w, u, v)]
            message = "w is {}, u is {} and v is {}: their hidden widths differ.".format(*shapes)
            raise InvalidInput(message, hint="w and u must have the same number of columns, and v one number for each.")
        return xp.tanh(projected_query[..., :, None, :] + projected_key[..., None, :, :]) @ v


def _unit_vectors(xp: Namespace, vectors: Array) -> Array:
    """Vectors of length 1. Dividing by the largest number first keeps the squares within range."""
    vectors = vectors / _replace_zero(xp, xp.max(xp.abs(vectors), axis=-1, keepdims=True))
    squares = xp.sum(vectors * vectors, axis=-1, keepdims=True)
    return vectors / xp.sqrt(_replace_zero(xp, squares))


def _replace_zero(xp: Namespace, numbers: Array) -> Array:
    return xp.where(numbers == 0, xp.ones_like(numbers), numbers)


SCORINGS: dict[str, Scoring] = {each.name: each for each in (DotProduct(), CosineSimilarity(), ScaledDotProduct())}


class Normalisation(Record):
    """Normalisation of a row of scores to a row of weights; `tex` has %s in place of the scores."""

    name: str
    tex: str
    description: str
    apply: Callable[[Namespace, Array], Array]


def softmax(xp: Namespace, masked: Array) -> Array:
    """Return the softmax of each row; a fully masked row (-inf) gives zeros.

    The row maximum is subtracted first: it cancels out, and prevents overflow.
    """
    powers, total = exp_and_sum(xp, masked)
    return powers / total


def exp_and_sum(xp: Namespace, masked: Array) -> tuple[Array, Array]:
    """Return numerator and denominator of softmax: e^x and its row sum, 1 for a fully masked row."""
    if masked.shape[-1] == 0:
        return masked, xp.ones_like(xp.sum(masked, axis=-1, keepdims=True))
    largest = xp.max(masked, axis=-1, keepdims=True)
    largest = xp.where(largest == -xp.inf, xp.zeros_like(largest), largest)
    powers = xp.exp(masked - largest)
    total = xp.sum(powers, axis=-1, keepdims=True)
    return powers, xp.where(total == 0, xp.ones_like(total), total)


def _divide_by_sum(xp: Namespace, masked: Array) -> Array:
    """Divide each score by the sum of its row's unmasked scores; raise if a sum is zero up to rounding."""
    unmasked = _unmasked_scores(xp, masked)
    total = xp.sum(unmasked, axis=-1, keepdims=True)
    rounding = xp.finfo(unmasked.dtype).eps * xp.sum(xp.abs(unmasked), axis=-1, keepdims=True)
    any_unmasked = xp.any(masked != -xp.inf, axis=-1, keepdims=True)
    if bool(xp.any((xp.abs(total) <= rounding) & any_unmasked)):
        message = "The unmasked scores of a row sum to 0, so they cannot be divided by their sum."
        raise InvalidInput(message, hint='Use normalise="softmax": powers of e are always above 0.')
    return unmasked / xp.where(any_unmasked, total, xp.ones_like(total))


def _unmasked_scores(xp: Namespace, masked: Array) -> Array:
    """Return the scores unchanged, zero where masked."""
    return xp.where(masked == -xp.inf, xp.zeros_like(masked), masked)


NORMALISATIONS = {
    normalisation.name: normalisation
    for normalisation in (
        Normalisation(
            "softmax", r"\operatorname{softmax}\left(%s\right)",
            "Softmax: e to the power of each score, divided by the sum of the row, so that each row sums to 1.",
            softmax,
        ),
        Normalisation(
            "sum", r"\frac{%s}{\text{sum of its row}}",
            "Each score is divided by the sum of its row, so that each row sums to 1.", _divide_by_sum,
        ),
        Normalisation("none", "%s", "The scores are used as weights; rows need not sum to 1.", _unmasked_scores),
    )
}  # fmt: skip
