"""From inputs to attention: projections, heads, and Concat(head_1 ... head_h) W^O."""

from dataclasses import replace
from typing import Any

from peasy.errors import InvalidInput
from peasy.formula.arrays import project, together
from peasy.formula.attention import AttentionSteps, attend
from peasy.formula.axes import D_CONCAT, D_KEY, D_MODEL, D_OUTPUT, D_SOURCE, D_VALUE, HEAD, KEY, QUERY
from peasy.formula.sizes import check_heads
from peasy.formula.step import Array, Step

X = Step("x", "X", "The tokens as vectors, one row each.", (QUERY, D_MODEL))
SOURCE = Step("source", r"X_{\text{source}}", "The tokens that are looked at, one row each.", (KEY, D_SOURCE))
W_Q = Step("w_q", "W_Q", "The matrix that makes queries out of inputs.", (D_MODEL, D_KEY))
W_K = Step("w_k", "W_K", "The matrix that makes keys out of inputs.", (D_MODEL, D_KEY))
W_V = Step("w_v", "W_V", "The matrix that makes values out of inputs.", (D_MODEL, D_VALUE))
W_O = Step("w_o", "W^O", "The matrix that mixes what the heads found.", (D_CONCAT, D_OUTPUT))
CONCAT = Step(
    "concat",
    r"\operatorname{Concat}(\text{head}_1, \dots, \text{head}_h)",
    "The contexts of all heads stand side by side.",
    (QUERY, D_CONCAT),
)
OUTPUT = Step("output", r"%s W^O", "A last linear map mixes what was found.", (QUERY, D_OUTPUT))


def attend_with_weights(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array | None = None,
    heads: int = 1,
    source: Array | None = None,
    **options: Any,
) -> AttentionSteps:
    """Attention from inputs `[time, d_model]` or `[batch, time, d_model]` and the matrices that make Q, K and V.

    With `source`, queries come from `x`, keys and values from `source`. Narrower `w_k` and `w_v` give
    fewer key/value heads, shared by groups of query heads. `options` are those of `attend`.

    >>> attend_with_weights([[1., 0.]], [[1.], [0.]], [[0.], [1.]], [[2.], [1.]]).context
    array([[2.]])
    """
    xp, (x, w_q, w_k, w_v, w_o, source) = together(x=x, w_q=w_q, w_k=w_k, w_v=w_v, w_o=w_o, source=source)
    if x.ndim not in (2, 3):
        raise InvalidInput(f"x has {x.ndim} axes.", hint="Give time x width or batch x time x width.")
    looked_at, its_name = (x, "x") if source is None else (source, "source")
    query = project(x, w_q, ("x", "w_q"))
    key = project(looked_at, w_k, (its_name, "w_k"))
    value = project(looked_at, w_v, (its_name, "w_v"))
    steps = attend_in_heads(xp, query, key, value, heads, options)
    steps = steps.captioned(projections(source is not None))

    before = ((X, x),) if source is None else ((X, x), (SOURCE, source))
    after: tuple[tuple[Step, Array], ...] = ()
    found, found_tex = steps.context, steps.step("context").tex
    if heads > 1:
        found, found_tex = merge(xp, found), CONCAT.tex
        after += ((CONCAT, found),)
    if w_o is not None:
        name = "concat" if heads > 1 else "context"
        after += ((replace(OUTPUT, tex=OUTPUT.tex % found_tex), project(found, w_o, (name, "w_o"))),)
    return steps.with_steps(before=before, after=after)


def split(xp: Any, array: Array, heads: int) -> Array:
    """`[..., time, heads * width]` to `[..., head, time, width]`."""
    *leading, time, width = array.shape
    if width % heads:
        raise InvalidInput(
            f"A width of {width} cannot be split into {heads} heads.", hint=f"Choose heads that divide {width}."
        )
    parted = xp.reshape(array, (*leading, time, heads, width // heads))
    return xp.moveaxis(parted, -2, -3)


def merge(xp: Any, array: Array) -> Array:
    """`[..., head, time, width]` to `[..., time, heads * width]`: what `split` did, undone."""
    *leading, heads, time, width = array.shape
    return xp.reshape(xp.moveaxis(array, -3, -2), (*leading, time, heads * width))


def attend_in_heads(xp: Any, query: Array, key: Array, value: Array, heads: int, options: dict) -> AttentionSteps:
    """`attend` with the width of query, key and value split into heads."""
    check_heads(heads)
    if heads == 1:
        return attend(query, key, value, **options)
    query = split(xp, query, heads)
    key_heads, left_over = divmod(key.shape[-1], query.shape[-1])
    if left_over or not key_heads:
        raise InvalidInput(
            f"Keys of width {key.shape[-1]} do not fit {heads} query heads of width {query.shape[-1]}.",
            hint=f"Give w_k a multiple of {query.shape[-1]} columns.",
        )
    key, value = split(xp, key, key_heads), split(xp, value, key_heads)
    if query.ndim == 4:
        return attend(query, key, value, **options)
    steps = attend(query[None, ...], key[None, ...], value[None, ...], **options)
    per_head = {name: {"axes": (HEAD, *steps.step(name).axes)} for name in steps}
    return steps.mapped(lambda array: array[0, ...]).captioned(per_head)


def projections(from_source: bool, learned: bool = True) -> dict[str, dict[str, str]]:
    """How query, key and value say where they come from: a matrix times the inputs, or the inputs themselves."""
    source = SOURCE.tex if from_source else "X"
    w_q, w_k, w_v = (" W_Q", " W_K", " W_V") if learned else ("", "", "")
    return {
        "query": {"tex": f"Q = X{w_q}"},
        "key": {"tex": f"K = {source}{w_k}"},
        "value": {"tex": f"V = {source}{w_v}"},
    }
