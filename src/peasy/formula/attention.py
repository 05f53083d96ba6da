r"""The attention formula, written once: softmax(QKᵀ/√d_k + M)V with all intermediate steps.

The same lines run on NumPy, torch and array-api-strict. Every attention step that peasy shows is computed
here, and tests keep the fused kernels equal to it.
"""

from dataclasses import replace
from typing import Any

import array_api_compat

from peasy.errors import named
from peasy.formula.arrays import gather, together
from peasy.formula.axes import D_KEY, D_VALUE, KEY, QUERY
from peasy.formula.inert import score_pairs, sum_values
from peasy.formula.masks import Window, visible
from peasy.formula.normalise import NORMALISATIONS, Normalisation, raise_scores
from peasy.formula.scoring import SCORINGS, Scoring
from peasy.formula.sizes import check_number, check_sizes
from peasy.formula.step import Array, Step, Steps

CONTRIBUTIONS = Step(
    "contributions",
    r"a_{ij} v_j",
    "The contribution of each key to each query: its weight times its value.",
    (QUERY, KEY, D_VALUE),
)


class AttentionSteps(Steps):
    """Steps of attention: query, key, value, scores, scaled, masked, weights, context."""

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

    def step(self, name: str) -> Step:
        """Return the caption of a step, or of the contributions."""
        if name != CONTRIBUTIONS.name:
            return super().step(name)
        return replace(CONTRIBUTIONS, axes=(*super().step("weights").axes, D_VALUE))


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
    scoring: str | Scoring = "scaled-dot",
    normalise: str | Normalisation = "softmax",
) -> AttentionSteps:
    """Compute attention with all steps, for `[time, width]`, `[batch, time, width]` or `[batch, head, time, width]`.

    `mask` is boolean, True = may attend; `bias` is added to the scaled scores (M in the formula).
    There may be fewer key/value heads than query heads (GQA). `causal` and `window` align the last query with the last
    key. A fully masked query gets zeros, and masked keys and values have no effect, even if they are NaN.
    Half precision and integers are converted, so that sums are computed in float32 or better.

    >>> attend([[1., 0.]], [[1., 0.], [0., 1.]], [[5.], [7.]], scoring="dot").weights.round(2)
    array([[0.73, 0.27]])
    """
    xp, (query, key, value, bias) = together(query=query, key=key, value=value, bias=bias)
    scoring, normalise = named(scoring, SCORINGS, "scoring"), named(normalise, NORMALISATIONS, "normalisation")
    check_sizes(query, key, value)
    check_number("scale", scale)
    check_number("softcap", softcap, above_zero=True)
    key, value = share_heads(xp, query, key), share_heads(xp, query, value)
    attendable = visible(xp, query, key, mask, bias, causal, window)

    factor = scoring.scale(key.shape[-1]) if scale is None else scale
    scores = score_pairs(xp, scoring.score, query, key, attendable)
    scaled = scale_scores(xp, scores, factor, softcap)
    masked = hide(xp, scaled, attendable, bias)
    weights = normalise.weigh(xp, masked)
    context = sum_values(xp, weights, value, attendable)

    arrays = (query, key, value, scores, scaled, masked, weights, context)
    steps = captions(scoring, normalise, scale, softcap, changed=masked is not scaled)
    return AttentionSteps(*zip(steps, arrays, strict=True))


def weigh(
    query: Array,
    key: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Array, Array]:
    """Return the weights of `attend` as `(powers, total)`, by the same code, without keeping the other steps.

    Weights are powers / total; a caller that sums many of them can divide once. A `mask` with fewer columns than there
    are keys applies to the last keys; all earlier ones are unmasked. Masked keys change no weight, but may reach
    gradients: for inspection, not for training.

    >>> powers, total = weigh([[1., 0.]], [[1., 0.], [0., 1.]], scale=1.0)
    >>> (powers / total).round(2)
    array([[0.73, 0.27]])
    """
    xp, (query, key, bias) = together(query=query, key=key, bias=bias)
    check_sizes(query, key, key)
    key, scoring = share_heads(xp, query, key), SCORINGS["scaled-dot"]
    scores = scoring.score(xp, query, key)
    attendable = None if mask is None else gather(query=query, mask=mask)[1][1]
    factor = scoring.scale(key.shape[-1]) if scale is None else scale
    masked = hide(xp, scale_scores(xp, scores, factor, softcap), attendable, bias, own=True)
    return raise_scores(xp, masked)


def scale_scores(xp: Any, scores: Array, factor: float, softcap: float | None) -> Array:
    """Multiply the scores by a factor, then apply the soft cap, if any."""
    scaled = scores if factor == 1 else scores * factor
    return xp.tanh(scaled / softcap) * softcap if softcap else scaled


def hide(xp: Any, scaled: Array, may_look: Array | None, bias: Array | None, *, own: bool = False) -> Array:
    """Add the bias and set masked scores to minus infinity; `in_place` where possible."""
    masked = scaled if bias is None else scaled + bias
    if may_look is None:
        return masked
    last = may_look.shape[-1]
    if not own or last in (1, masked.shape[-1]):
        return xp.where(may_look, masked, -xp.inf)
    masked[..., -last:] = xp.where(may_look, masked[..., -last:], -xp.inf)
    return masked


def share_heads(xp: Any, query: Array, shared: Array) -> Array:
    """Repeat each key/value head for the query heads that share it (GQA)."""
    if query.ndim < 4 or query.shape[1] == shared.shape[1]:
        return shared
    return xp.repeat(shared, query.shape[1] // shared.shape[1], axis=1)


def captions(
    scoring: Scoring,
    normalise: Normalisation,
    scale: float | None = None,
    softcap: float | None = None,
    changed: bool = True,
) -> tuple[Step, ...]:
    """Return the captions of all steps under these settings; M appears only if `has_mask`."""
    scaled_tex, scaled_says = scoring.tex, "The scores are not scaled."
    if scale is not None:
        scaled_tex, scaled_says = rf"{scale:g} \cdot {scoring.tex}", f"Each score is multiplied by {scale:g}."
    elif scoring.name == "scaled-dot":
        scaled_tex = rf"\frac{{{scoring.tex}}}{{\sqrt{{d_k}}}}"
        scaled_says = "Each score is divided by the square root of the key width, so that scores do not grow with it."
    if softcap:
        scaled_tex = rf"{softcap:g} \tanh\left(\frac{{{scaled_tex}}}{{{softcap:g}}}\right)"
        scaled_says += f" Then tanh limits it to between -{softcap:g} and {softcap:g}."
    masked_tex, masked_says = scaled_tex, "Nothing is masked: every query may attend to every key."
    if changed:
        masked_tex = f"{scaled_tex} + M"
        masked_says = "M is added; masked scores become minus infinity."
    weights_tex = normalise.tex % masked_tex
    summed_tex = rf"\left({weights_tex}\right)" if changed and weights_tex == masked_tex else weights_tex
    return (
        Step("query", "Q", "What each token is looking for.", (QUERY, scoring.query_width)),
        Step("key", "K", "What each token offers to match.", (KEY, D_KEY)),
        Step("value", "V", "The content that each token passes on.", (KEY, D_VALUE)),
        Step("scores", scoring.tex, scoring.says, (QUERY, KEY)),
        Step("scaled", scaled_tex, scaled_says, (QUERY, KEY)),
        Step("masked", masked_tex, masked_says, (QUERY, KEY)),
        Step("weights", weights_tex, normalise.says, (QUERY, KEY)),
        Step("context", f"{summed_tex} V", "Each row is the weighted sum of the values.", (QUERY, D_VALUE)),
    )
