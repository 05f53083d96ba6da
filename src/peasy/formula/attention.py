r"""Scaled dot-product attention, written once: softmax(QKᵀ/√d_k + M)V with all intermediate steps.

The same lines run on NumPy, torch and array-api-strict. Every attention step that peasy shows is computed
here, and tests keep the fused kernels equal to it.
"""

from dataclasses import replace
from typing import TypedDict

import array_api_compat

from peasy.errors import InvalidInput, lookup
from peasy.formula.arrays import (
    check_axes,
    check_broadcastable,
    check_number,
    check_shapes,
    format_shape,
    project,
    to_common_dtype,
)
from peasy.formula.masks import Window, as_mask, combine_masks
from peasy.formula.scoring import NORMALISATIONS, SCORINGS, Normalisation, Scoring, exp_and_sum
from peasy.formula.step import D_KEY, D_VALUE, KEY, QUERY, Array, FormulaStep, Namespace, Steps

CONTRIBUTIONS = FormulaStep(
    "contributions", r"a_{ij} v_j", "The contribution of each key to each query: its weight times its value.",
    (QUERY, KEY, D_VALUE),
)  # fmt: skip


class AttentionSteps(Steps):
    """Steps of attention: query, key, value, scores, scaled, masked, weights, context.

    >>> steps = attend([[1.0]], [[1.0], [0.0]], [[5.0], [7.0]], scoring="dot")
    >>> steps.scores, steps.context.round(2)
    (array([[1., 0.]]), array([[5.54]]))
    """

    query: Array
    key: Array
    value: Array
    scores: Array
    scaled: Array
    masked: Array
    weights: Array
    context: Array

    @property
    def contributions(self) -> Array:
        """Contribution of each key to each query, weight times value: `[..., query, key, d_value]`.

        Their sum over the keys is the context. Computed on access; `step("contributions")` is the caption.
        """
        xp = array_api_compat.array_namespace(self.weights)
        value = self.value[..., None, :, :]
        unmasked = xp.where((self.masked == -xp.inf)[..., None], xp.zeros_like(value), value)
        return self.weights[..., None] * unmasked

    def step(self, name: str) -> FormulaStep:
        """Return the caption of a step, or of the contributions."""
        if name != CONTRIBUTIONS.name:
            return super().step(name)
        return replace(CONTRIBUTIONS, axes=(*super().step("weights").axes, D_VALUE))


class AttentionOptions(TypedDict, total=False):
    """Options of `attend`."""

    mask: Array | None
    bias: Array | None
    causal: bool
    window: Window | None
    scale: float | None
    softcap: float | None
    sinks: Array | None
    scoring: str | Scoring
    normalise: str | Normalisation


def attend(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    window: Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    scoring: str | Scoring = "scaled-dot",
    normalise: str | Normalisation = "softmax",
) -> AttentionSteps:
    """Compute attention with all steps, for `[time, width]`, `[batch, time, width]` or `[batch, head, time, width]`.

    `mask` is boolean, True = may attend; `bias` is added to the scaled scores (M in the formula).
    `sinks` is one more score per head, `[head]` or a number, that has no key: what it gets is missing from the weights.
    There may be fewer key/value heads than query heads (GQA). `causal` and `window` align the last query with the last
    key. A fully masked query gets zeros, and masked keys and values have no effect, even if they are NaN; visible ones
    have the same effect as without a mask.
    Half precision and integers are converted, so that sums are computed in float32 or better.

    >>> attend([[1., 0.]], [[1., 0.], [0., 1.]], [[5.], [7.]], scoring="dot").weights.round(2)
    array([[0.73, 0.27]])
    """
    xp, (query, key, value, bias, sinks) = to_common_dtype(query=query, key=key, value=value, bias=bias, sinks=sinks)
    scoring, normalise = lookup(scoring, SCORINGS, "scoring"), lookup(normalise, NORMALISATIONS, "normalisation")
    check_shapes(query, key, value)
    check_number("scale", scale)
    check_number("softcap", softcap, positive=True)
    attendable = combine_masks(xp, query, key, mask, bias, causal, window)
    return attention_steps(
        xp, query, key, value, attendable, bias, scale, softcap=softcap, sinks=sinks, scoring=scoring,
        normalise=normalise,
    )  # fmt: skip


def attention_steps(
    xp: Namespace, query: Array, key: Array, value: Array, attendable: Array | None, bias: Array | None = None,
    scale: float | None = None, *, softcap: float | None = None, sinks: Array | None = None,
    scoring: Scoring = SCORINGS["scaled-dot"], normalise: Normalisation = NORMALISATIONS["softmax"],
) -> AttentionSteps:  # fmt: skip
    """Compute the steps of `attend` from arrays of one library and dtype; `attendable` combines all masks."""
    key, value = _repeat_kv(xp, query, key), _repeat_kv(xp, query, value)
    factor = scoring.scale(key.shape[-1]) if scale is None else scale
    scores = _nan_safe_scores(xp, scoring, query, key, attendable)
    scaled = scale_scores(xp, scores, factor, softcap)
    masked = apply_mask(xp, scaled, attendable, bias)
    weights = normalise_scores(xp, masked, normalise, sinks)
    context = _nan_safe_weighted_sum(xp, weights, value, attendable)

    arrays = (query, key, value, scores, scaled, masked, weights, context)
    has_mask, has_sinks = masked is not scaled, sinks is not None
    steps = attention_captions(scoring, normalise, scale, softcap, has_mask, has_sinks)
    return AttentionSteps(*zip(steps, arrays, strict=True))


def unnormalised_weights(
    query: Array,
    key: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
) -> tuple[Array, Array]:
    """Return the weights of `attend` as `(powers, total)`, by the same code, without keeping the other steps.

    Weights are powers / total; a caller that sums many of them can divide once. A `mask` with fewer columns than there
    are keys applies to the last keys; all earlier ones are unmasked. Masked keys change no weight, but may reach
    gradients: for inspection, not for training.

    >>> powers, total = unnormalised_weights([[1., 0.]], [[1., 0.], [0., 1.]], scale=1.0)
    >>> (powers / total).round(2)
    array([[0.73, 0.27]])
    """
    xp, (query, key, bias, sinks) = to_common_dtype(query=query, key=key, bias=bias, sinks=sinks)
    check_shapes(query, key, key)
    key, scoring = _repeat_kv(xp, query, key), SCORINGS["scaled-dot"]
    scores = scoring.score(xp, query, key)
    check_number("scale", scale)
    check_number("softcap", softcap, positive=True)
    attendable = None if mask is None else as_mask(query, mask, scores.shape, of_last_keys=True)
    if bias is not None:
        check_broadcastable("bias", bias, scores.shape)
    factor = scoring.scale(key.shape[-1]) if scale is None else scale
    masked = apply_mask(xp, scale_scores(xp, scores, factor, softcap), attendable, bias, in_place=True)
    if sinks is None:
        return exp_and_sum(xp, masked)
    powers, total = exp_and_sum(xp, _append_sinks(xp, masked, sinks))
    return powers[..., : masked.shape[-1]], total


def normalise_scores(xp: Namespace, masked: Array, normalise: Normalisation, sinks: Array | None = None) -> Array:
    """Return the weights of masked scores; sinks take part like one more key, whose weight is left out."""
    scores = masked if sinks is None else _append_sinks(xp, masked, sinks)
    return normalise.apply(xp, scores)[..., : masked.shape[-1]]


def _append_sinks(xp: Namespace, masked: Array, sinks: Array) -> Array:
    """Append a column with the sink score of each head."""
    if sinks.shape not in ((), masked.shape[1:2] if masked.ndim == 4 else ()):
        message = f"sinks is {format_shape(sinks.shape)}, but the scores are {format_shape(masked.shape)}."
        raise InvalidInput(message, hint="Give one number, or with [batch, head, time, width] one per head.")
    column = xp.reshape(sinks, (*sinks.shape, 1, 1))
    return xp.concat((masked, xp.broadcast_to(column, (*masked.shape[:-1], 1))), axis=-1)


def weighted_sum(weights: Array, value: Array) -> Array:
    """Return the context of given weights: weights · value; query heads may share value heads (GQA).

    >>> weighted_sum([[0.5, 0.5]], [[2.0], [4.0]])
    array([[3.]])
    """
    xp, (weights, value) = to_common_dtype(weights=weights, value=value)
    check_axes(weights=weights, value=value)
    return project(weights, _repeat_kv(xp, weights, value), ("weights", "value"))


def scale_scores(xp: Namespace, scores: Array, factor: float, softcap: float | None) -> Array:
    """Multiply the scores by a factor, then apply the soft cap, if any."""
    scaled = scores if factor == 1 else scores * factor
    return xp.tanh(scaled / softcap) * softcap if softcap is not None else scaled


def apply_mask(
    xp: Namespace, scaled: Array, mask: Array | None, bias: Array | None, *, in_place: bool = False
) -> Array:
    """Add the bias and set masked scores to minus infinity; `in_place` where possible."""
    masked = scaled if bias is None else scaled + bias
    if mask is None:
        return masked
    last = mask.shape[-1] if mask.ndim else 1
    if not in_place or last in (1, masked.shape[-1]):
        return xp.where(mask, masked, -xp.inf)
    masked[..., -last:] = xp.where(mask, masked[..., -last:], -xp.inf)
    return masked


def _repeat_kv(xp: Namespace, query: Array, kv: Array) -> Array:
    """Repeat each key/value head for the query heads that share it (GQA)."""
    if min(query.ndim, kv.ndim) < 4 or query.shape[1] == kv.shape[1] or not kv.shape[1]:
        return kv
    return xp.repeat(kv, query.shape[1] // kv.shape[1], axis=1)


def _nan_safe_scores(xp: Namespace, scoring: Scoring, query: Array, key: Array, mask: Array | None) -> Array:
    """Return the scores; a vector with NaN or inf changes only its own scores, as without a mask.

    Zero times NaN is NaN, in sums as in gradients. So if there is a mask, non-finite numbers are replaced by zero
    before the products; what does depend on them is added afterwards, as a constant.
    """
    if mask is None:
        return scoring.score(xp, query, key)
    (finite_query, bad_query), (finite_key, bad_key) = _zero_nonfinite(xp, query), _zero_nonfinite(xp, key)
    scores = scoring.score(xp, finite_query, finite_key)
    rows = [] if bad_query is None else [xp.any(bad_query, axis=-1)[..., :, None]]
    columns = [] if bad_key is None else [xp.any(bad_key, axis=-1)[..., None, :]]
    for bad in rows + columns:
        is_visible = bool(xp.any(mask & bad))
        scores = xp.where(bad, _constant(scoring.score(xp, query, key)) if is_visible else xp.nan, scores)
    return scores


def _nan_safe_weighted_sum(xp: Namespace, weights: Array, value: Array, mask: Array | None) -> Array:
    """Return weights · value; a value with NaN or inf reaches only the queries that may attend to it."""
    if mask is None:
        return weights @ value
    finite, bad = _zero_nonfinite(xp, value)
    total = weights @ finite
    if bad is None:
        return total
    attends, weight, value = xp.broadcast_to(mask, weights.shape), _constant(weights), _constant(value)
    up, down, unknown = weight > 0, weight < 0, ~((weight > 0) | (weight < 0))  # zero times infinity is NaN

    def occurs(selected: Array, values: Array) -> Array:
        """True where a query attends to a selected weight of one of these values."""
        return xp.astype(attends & selected, weights.dtype) @ xp.astype(values, weights.dtype) > 0

    plus, minus = value == xp.inf, value == -xp.inf
    for infinity, found in (
        (xp.inf, occurs(up, plus) | occurs(down, minus)),
        (-xp.inf, occurs(up, minus) | occurs(down, plus)),
        (xp.nan, occurs(up | ~up, xp.isnan(value)) | occurs(unknown, plus | minus)),
    ):
        total = total + xp.where(found, infinity, xp.zeros_like(total))
    return total


def _constant(array: Array) -> Array:
    """Return an array without its gradient."""
    return array.detach() if hasattr(array, "detach") else array


def _zero_nonfinite(xp: Namespace, array: Array) -> tuple[Array, Array | None]:
    """Replace NaN and inf by zero; also return where they were, None = nowhere."""
    finite = xp.isfinite(array)
    if bool(xp.all(finite)):
        return array, None
    return xp.where(finite, array, xp.zeros_like(array)), ~finite


def attention_captions(
    scoring: Scoring, normalise: Normalisation, scale: float | None = None, softcap: float | None = None,
    has_mask: bool = True, has_sinks: bool = False,
) -> tuple[FormulaStep, ...]:  # fmt: skip
    """Return the captions of all steps under these settings; M appears only if `has_mask`, s only if `has_sinks`."""
    scaled_tex, scaled_about = scoring.tex, "The scores are not scaled."
    if scale is not None:
        scaled_tex, scaled_about = rf"{scale:g} \cdot {scoring.tex}", f"Each score is multiplied by {scale:g}."
    elif scoring.name == "scaled-dot":
        scaled_tex = rf"\frac{{{scoring.tex}}}{{\sqrt{{d_k}}}}"
        scaled_about = "Each score is divided by the square root of the key width, so that scores do not grow with it."
    if softcap is not None:
        scaled_tex = rf"{softcap:g} \tanh\left(\frac{{{scaled_tex}}}{{{softcap:g}}}\right)"
        scaled_about += f" Then tanh limits it to between -{softcap:g} and {softcap:g}."
    masked_tex, masked_about = scaled_tex, "Nothing is masked: every query may attend to every key."
    if has_mask:
        masked_tex = f"{scaled_tex} + M"
        masked_about = "M is added; masked scores become minus infinity."
    weights_tex, weights_about = normalise.tex % masked_tex, normalise.description
    if has_sinks:
        weights_tex = normalise.tex % rf"\left[{masked_tex}\;\; s\right]"
        weights_about += " The sink s takes part like one more key without a value, so the row sums to less than 1."
    summed_tex = rf"\left({weights_tex}\right)" if has_mask and weights_tex == masked_tex else weights_tex
    return (
        FormulaStep("query", "Q", "What each token is looking for.", (QUERY, scoring.query_width)),
        FormulaStep("key", "K", "What each token offers to match.", (KEY, D_KEY)),
        FormulaStep("value", "V", "The content that each token passes on.", (KEY, D_VALUE)),
        FormulaStep("scores", scoring.tex, scoring.description, (QUERY, KEY)),
        FormulaStep("scaled", scaled_tex, scaled_about, (QUERY, KEY)),
        FormulaStep("masked", masked_tex, masked_about, (QUERY, KEY)),
        FormulaStep("weights", weights_tex, weights_about, (QUERY, KEY)),
        FormulaStep("context", f"{summed_tex} V", "Each row is the weighted sum of the values.", (QUERY, D_VALUE)),
    )
