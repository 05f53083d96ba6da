"""Normalisations of scores to weights: softmax, division by the sum, or none. Masked keys get weight zero."""

from collections.abc import Callable

from peasy.errors import InvalidInput
from peasy.formula.step import Array, Namespace
from peasy.parameters import Record


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
