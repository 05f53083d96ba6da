r"""The attention formula, written once: softmax(QKᵀ/√d_k + M)V with every step visible.

The same lines run on NumPy, torch and array-api-strict. Everything in peasy that shows
an attention number got it here, and the fused kernels are held equal to it by tests.
"""

from typing import Any, TypeVar

import array_api_compat

from peasy.errors import InvalidInput, did_you_mean
from peasy.formula import masks
from peasy.formula.arrays import mismatch, times, together
from peasy.formula.axes import D_KEY, D_VALUE, KEY, QUERY
from peasy.formula.normalise import NORMALISATIONS, Normalisation
from peasy.formula.scoring import SCORINGS, Additive, Scoring
from peasy.formula.step import Array, Step, Steps


class AttentionSteps(Steps):
    """Attention, step by step: query, key, value, scores, scaled, masked, weights, context."""

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
        """What each key brings to each query, weight times value: `[..., query, key, d_value]`."""
        return self.weights[..., :, :, None] * self.value[..., None, :, :]


def attend(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    window: masks.Window | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    scoring: str | Scoring = "scaled-dot",
    normalise: str | Normalisation = "softmax",
) -> AttentionSteps:
    """Attention with all its steps, for `[time, width]`, `[batch, time, width]` or `[batch, head, time, width]`.

    `mask` is boolean, True = may look; `bias` is added to the scaled scores (the documents' M).
    There may be fewer key/value heads than query heads. `causal` and `window` put the last query at the last key.

    >>> attend([[1., 0.]], [[1., 0.], [0., 1.]], [[5.], [7.]], scoring="dot").weights.round(2)
    array([[0.73, 0.27]])
    """
    xp, (query, key, value, bias) = together(query=query, key=key, value=value, bias=bias)
    scoring, normalise = named(scoring, SCORINGS, "scoring"), named(normalise, NORMALISATIONS, "normalisation")
    check_sizes(query, key, value, any_width=isinstance(scoring, Additive))
    key, value = share_heads(xp, query, key), share_heads(xp, query, value)
    may_look = visible(xp, query, key, mask, bias, causal, window)
    bare_key, bad_key = set_aside(xp, key, may_look)
    bare_value, bad_value = set_aside(xp, value, may_look)

    scores = scoring.score(xp, query, bare_key)
    factor = scoring.scale(query.shape[-1]) if scale is None else scale
    scaled = scores if factor == 1 else scores * factor
    if softcap:
        scaled = xp.tanh(scaled / softcap) * softcap
    masked = scaled if bias is None else scaled + bias
    if bad_key is not None:
        masked = xp.where(xp.any(bad_key, axis=-1)[..., None, :], xp.nan, masked)
    if may_look is not None:
        masked = xp.where(may_look, masked, -xp.inf)
    weights = normalise.weigh(xp, masked)
    context = weights @ bare_value
    if bad_value is not None:
        looked_at = xp.astype(may_look, weights.dtype) @ xp.astype(bad_value, weights.dtype)
        context = xp.where(looked_at > 0, xp.nan, context)

    arrays = (query, key, value, scores, scaled, masked, weights, context)
    changed = may_look is not None or bias is not None
    return AttentionSteps(*zip(captions(scoring, normalise, scale, softcap, changed), arrays, strict=True))


def captions(
    scoring: Scoring,
    normalise: Normalisation,
    scale: float | None = None,
    softcap: float | None = None,
    changed: bool = True,
) -> tuple[Step, ...]:
    """What each step is called and says, under these settings; M stands in them only when it `changed` something."""
    scaled, scaled_says = scoring.tex, "The scores are taken as they are."
    if scale is not None:
        scaled, scaled_says = rf"{scale:g} \cdot {scoring.tex}", f"Each score is multiplied by {scale:g}."
    elif scoring.name == "scaled-dot":
        scaled = rf"\frac{{{scoring.tex}}}{{\sqrt{{d_k}}}}"
        scaled_says = "Each score is divided by the root of the key's width, so that wide vectors do not shout."
    if softcap:
        scaled = rf"{softcap:g} \tanh\left(\frac{{{scaled}}}{{{softcap:g}}}\right)"
        scaled_says += f" Then tanh keeps it between -{softcap:g} and {softcap:g}."
    masked = f"{scaled} + M" if changed else scaled
    weights = normalise.tex % masked
    return (
        Step("query", "Q", "What each token is looking for.", (QUERY, D_KEY)),
        Step("key", "K", "What each token offers.", (KEY, D_KEY)),
        Step("value", "V", "What each token actually says.", (KEY, D_VALUE)),
        Step("scores", scoring.tex, scoring.says, (QUERY, KEY)),
        Step("scaled", scaled, scaled_says, (QUERY, KEY)),
        Step("masked", masked, "Where a query may not look, the score becomes minus infinity.", (QUERY, KEY)),
        Step("weights", weights, normalise.says, (QUERY, KEY)),
        Step("context", f"{weights} V", "Each row is the sum of all values, each times its weight.", (QUERY, D_VALUE)),
    )


Named = TypeVar("Named")


def named(given: str | Named, known: dict[str, Named], what: str) -> Named:
    """The thing of that name; a thing that is not a name is itself."""
    if not isinstance(given, str):
        return given
    if given not in known:
        hint = did_you_mean(given, known) or f"Known: {', '.join(known)}."
        raise InvalidInput(f'There is no {what} "{given}".', hint=hint)
    return known[given]


def check_sizes(query: Array, key: Array, value: Array, any_width: bool) -> None:
    """Refuse sizes that do not meet, in words."""
    for name, array in {"query": query, "key": key, "value": value}.items():
        if array.ndim not in (2, 3, 4):
            raise InvalidInput(
                f"{name} has {array.ndim} axes.",
                hint="Give time x width, batch x time x width or batch x head x time x width.",
            )
    if not query.ndim == key.ndim == value.ndim:
        raise InvalidInput(
            f"query is {times(query.shape)}, key is {times(key.shape)} and value is {times(value.shape)}: give all the same number of axes."
        )
    if query.shape[-1] != key.shape[-1] and not any_width:
        raise mismatch(("query", "keyᵀ"), query.shape, (*key.shape[:-2], key.shape[-1], key.shape[-2]))
    if key.shape[:-1] != value.shape[:-1]:
        raise InvalidInput(
            f"key is {times(key.shape)} and value is {times(value.shape)}: every key needs exactly one value.",
            hint="All sizes but the last must be the same.",
        )
    if query.shape[:-3] != key.shape[:-3] or (query.ndim == 3 and query.shape[0] != key.shape[0]):
        raise InvalidInput(f"query is {times(query.shape)} and key is {times(key.shape)}: the batch sizes differ.")
    if query.ndim == 4 and query.shape[1] % max(key.shape[1], 1):
        raise InvalidInput(
            f"{query.shape[1]} query heads cannot share {key.shape[1]} key heads evenly.",
            hint="The number of query heads must be a multiple of the number of key heads.",
        )


def share_heads(xp: Any, query: Array, shared: Array) -> Array:
    """Repeat each key/value head for the group of query heads that shares it."""
    if query.ndim < 4 or query.shape[1] == shared.shape[1]:
        return shared
    return xp.repeat(shared, query.shape[1] // shared.shape[1], axis=1)


def visible(
    xp: Any, query: Array, key: Array, mask: Array | None, bias: Array | None, causal: bool, window: Any
) -> Array | None:
    """Which keys each query may look at, from all that was said; None = all of them."""
    n_query, n_key, device = query.shape[-2], key.shape[-2], array_api_compat.device(query)
    said = []
    if causal:
        said.append(masks.causal(xp, n_query, n_key, device))
    if window is not None:
        said.append(masks.window(xp, n_query, n_key, window, device))
    if mask is not None:
        said.append(as_mask(xp, mask, (n_query, n_key), device))
    if bias is not None and bool(xp.any(bias == -xp.inf)):
        said.append(bias != -xp.inf)
    if not said:
        return None
    allowed = said[0]
    for more in said[1:]:
        allowed = allowed & more
    return allowed


def as_mask(xp: Any, mask: Array, wanted: tuple[int, int], device: Any) -> Array:
    """A boolean mask, or an error that says what a mask is."""
    mask = mask if array_api_compat.is_array_api_obj(mask) else xp.asarray(mask, device=device)
    if not xp.isdtype(mask.dtype, "bool"):
        raise InvalidInput(
            f"The mask holds {mask.dtype}, not True and False.",
            hint="True = may look. Numbers to be added go to bias=.",
        )
    for got, want in zip(mask.shape[-2:][::-1], wanted[::-1], strict=False):
        if got not in (1, want):
            raise InvalidInput(
                f"The mask is {times(mask.shape)}: {wanted[0]} queries and {wanted[1]} keys need {wanted[0]}x{wanted[1]}."
            )
    return mask if mask.ndim > 1 else mask[None, :]


def set_aside(xp: Any, array: Array, may_look: Array | None) -> tuple[Array, Array | None]:
    """Put zero where NaN or infinity stands, and tell where that was.

    Zero times NaN is NaN, so a hidden number would spoil the sums of queries that never look at it.
    Who does look at it gets NaN in the end, as it should be. Where nothing is hidden, nothing is done.
    """
    if may_look is None:
        return array, None
    good = xp.isfinite(array)
    if bool(xp.all(good)):
        return array, None
    return xp.where(good, array, xp.zeros_like(array)), ~good
