"""Multi-head attention from inputs: projections, heads, and Concat(head_1 ... head_h) W^O."""

from dataclasses import replace
from typing import Unpack

from peasy.errors import InvalidInput
from peasy.formula import step as axis
from peasy.formula.arrays import check_heads, project, to_common_dtype
from peasy.formula.attention import AttentionOptions, AttentionSteps, attend
from peasy.formula.step import Array, FormulaStep, Namespace, StepArrays

X = FormulaStep("x", "X", "The token vectors, one row each.", (axis.TOKEN, axis.D_MODEL))
SOURCE = FormulaStep(
    "source", r"X_{\text{source}}", "The token vectors of the source, one row each.", (axis.KEY, axis.D_SOURCE)
)
W_Q = FormulaStep("w_q", "W_Q", "The query projection.", (axis.D_MODEL, axis.D_KEY))
W_K = FormulaStep("w_k", "W_K", "The key projection.", (axis.D_MODEL, axis.D_KEY))
W_V = FormulaStep("w_v", "W_V", "The value projection.", (axis.D_MODEL, axis.D_VALUE))
W_O = FormulaStep("w_o", "W^O", "The output projection, which mixes the heads.", (axis.D_CONCAT, axis.D_OUTPUT))
CONCAT = FormulaStep(
    "concat", r"\operatorname{Concat}(\text{head}_1, \dots, \text{head}_h)",
    "The contexts of all heads, concatenated.", (axis.QUERY, axis.D_CONCAT),
)  # fmt: skip
OUTPUT = FormulaStep("output", r"%s W^O", "The output projection of the context.", (axis.QUERY, axis.D_OUTPUT))


def attend_with_weights(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array | None = None,
    heads: int = 1,
    source: Array | None = None,
    **options: Unpack[AttentionOptions],
) -> AttentionSteps:
    """Compute attention from inputs `[time, d_model]` or `[batch, time, d_model]` and the projections of Q, K and V.

    With `source` (cross-attention), queries come from `x`, keys and values from `source`. Narrower `w_k` and `w_v`
    give fewer key/value heads (GQA). `options` are those of `attend`.

    >>> attend_with_weights([[1., 0.]], [[1.], [0.]], [[0.], [1.]], [[2.], [1.]]).context
    array([[2.]])
    """
    xp, (x, w_q, w_k, w_v, w_o, source) = to_common_dtype(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, source=source)
    if x is None or any(weight is None for weight in (w_q, w_k, w_v)):
        raise InvalidInput("x, w_q, w_k and w_v are needed.", hint="Use arrays, or nested lists of numbers.")
    if x.ndim not in (2, 3):
        raise InvalidInput(f"x has {x.ndim} axes.", hint="Use [time, width] or [batch, time, width].")
    kv_input, kv_name = (x, "x") if source is None else (source, "source")
    query = project(x, w_q, ("x", "w_q"))
    key = project(kv_input, w_k, (kv_name, "w_k"))
    value = project(kv_input, w_v, (kv_name, "w_v"))
    steps = _attend_multi_head(xp, query, key, value, heads, options)
    steps = steps.with_captions(projection_captions(source is not None))

    before = ((X, x),) if source is None else ((X, x), (SOURCE, source))
    after: StepArrays = ()
    context, name, tex = steps.context, "context", steps.step("context").tex
    if heads > 1:
        context, name, tex = merge_heads(xp, context), "concat", CONCAT.tex
        after += ((CONCAT, context),)
    if w_o is not None:
        after += ((replace(OUTPUT, tex=OUTPUT.tex % tex), project(context, w_o, (name, "w_o"))),)
    return steps.with_steps(before=before, after=after)


def split_heads(xp: Namespace, array: Array, heads: int) -> Array:
    """Split heads: `[..., time, heads * width]` to `[..., head, time, width]`."""
    *leading, time, width = array.shape
    if width % heads:
        message = f"A width of {width} cannot be split into {heads} heads."
        raise InvalidInput(message, hint=f"Choose heads that divide {width}.")
    by_head = xp.reshape(array, (*leading, time, heads, width // heads))
    return xp.moveaxis(by_head, -2, -3)


def merge_heads(xp: Namespace, array: Array) -> Array:
    """Merge heads: `[..., head, time, width]` to `[..., time, heads * width]`, the inverse of `split_heads`."""
    *leading, heads, time, width = array.shape
    return xp.reshape(xp.moveaxis(array, -3, -2), (*leading, time, heads * width))


def _attend_multi_head(
    xp: Namespace, query: Array, key: Array, value: Array, heads: int, options: AttentionOptions
) -> AttentionSteps:
    """Split query, key and value into heads and attend."""
    check_heads(heads)
    if heads == 1:
        return attend(query, key, value, **options)
    query = split_heads(xp, query, heads)
    kv_heads, remainder = divmod(key.shape[-1], query.shape[-1])
    if remainder or not kv_heads:
        message = f"Keys of width {key.shape[-1]} do not fit {heads} query heads of width {query.shape[-1]}."
        raise InvalidInput(message, hint=f"The columns of w_k must be a multiple of {query.shape[-1]}.")
    key, value = split_heads(xp, key, kv_heads), split_heads(xp, value, kv_heads)
    if query.ndim == 4:
        return attend(query, key, value, **options)
    steps = attend(query[None, ...], key[None, ...], value[None, ...], **options)
    per_head = {name: {"axes": (axis.HEAD, *steps.step(name).axes)} for name in steps}
    return steps.map_arrays(lambda array: array[0, ...]).with_captions(per_head)


def projection_captions(cross_attention: bool, learned: bool = True) -> dict[str, dict[str, str]]:
    """Return the TeX of query, key and value: projected inputs, or the inputs themselves."""
    source = SOURCE.tex if cross_attention else "X"
    w_q, w_k, w_v = (" W_Q", " W_K", " W_V") if learned else ("", "", "")
    return {
        "query": {"tex": f"Q = X{w_q}"},
        "key": {"tex": f"K = {source}{w_k}"},
        "value": {"tex": f"V = {source}{w_v}"},
    }
