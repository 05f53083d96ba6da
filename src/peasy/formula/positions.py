"""Position encodings: sinusoidal, rotary, ALiBi."""

from typing import Annotated

from annotated_types import Ge, Gt, Le

from peasy.errors import InvalidInput, lookup
from peasy.formula import step as axis
from peasy.formula.arrays import check_axes, check_heads, format_shape, to_common_dtype
from peasy.formula.masks import position_distances
from peasy.formula.step import Array, FormulaStep, Namespace, StepArrays, Steps

_ANGLES = (
    FormulaStep("position", "p", "The position of each token, counted from 0.", (axis.TIME,)),
    FormulaStep("frequency", r"\omega_i = b^{-2i/d}",
                "How fast each pair of dimensions rotates: the first fastest, the last slowest.", (axis.PAIR,)),
    FormulaStep("angle", r"p \omega_i",
                "The rotation angle of each pair at each position: position times frequency.", (axis.TIME, axis.PAIR)),
    FormulaStep("cosine", r"\cos(p \omega_i)", "The factor of each element itself.", (axis.TIME, axis.PAIR)),
    FormulaStep("sine", r"\sin(p \omega_i)", "The factor of the other element of its pair.", (axis.TIME, axis.PAIR)),
)  # fmt: skip
_ENCODING = FormulaStep(
    "encoding", r"\sin(p \omega_i),\; \cos(p \omega_i)",
    "The sine and the cosine of each angle: nearby positions get similar vectors.", (axis.TIME, axis.D_MODEL),
)  # fmt: skip
_UNROTATED = FormulaStep("x", "x", "The queries or keys before rotation.", (axis.TIME, axis.D_KEY))
_ROTATED = (
    FormulaStep("rotated_90", r"\tilde{x}", "Each pair rotated by 90 degrees: (a, b) becomes (-b, a).",
                (axis.TIME, axis.D_KEY)),
    FormulaStep("rotated", r"x \cos(p \omega) + \tilde{x} \sin(p \omega)",
                "Each pair rotated by its angle; dot products then depend only on the distance between two tokens.",
                (axis.TIME, axis.D_KEY)),
)  # fmt: skip
_ALIBI = (
    FormulaStep("slope", "m_h", "How strongly each head penalises distance.", (axis.HEAD,)),
    FormulaStep("distance", r"\lvert i - j \rvert", "The distance between query and key, in positions.",
                (axis.QUERY, axis.KEY)),
    FormulaStep("bias", r"-m_h \lvert i - j \rvert", "What is added to each score: minus slope times distance.",
                (axis.HEAD, axis.QUERY, axis.KEY)),
)  # fmt: skip


Count = Annotated[int, Ge(1), Le(1 << 24)]
"""Number of tokens or dimensions."""
Base = Annotated[float, Gt(0)]
"""Base of the frequencies: the larger, the slower the last pair rotates."""
LAYOUTS = {"halves": False, "interleaved": True}
"""Which two dimensions form a pair: i and i + d/2, or 2i and 2i + 1. The value: are they interleaved?"""


def sinusoidal(
    n_time: Count, d_model: Count, *, base: Base = 10000.0, layout: str = "interleaved", like: Array | None = None
) -> Steps:
    """Sinusoidal position encoding (2017), to be added to the embeddings. Steps: position, frequency, angle, encoding.

    Library and dtype are those of `like`; without it, NumPy float64.

    >>> sinusoidal(2, 4).encoding.round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    xp, (like,) = to_common_dtype(like=[0.0] if like is None else like)
    steps = _angle_steps(xp, _arange(xp, n_time, like), d_model, base)
    (_, cosine), (_, sine) = steps[-2:]
    pairs = _join_pairs(xp, sine, cosine, lookup(layout, LAYOUTS, "layout"))
    return Steps(*steps[:-2], (_ENCODING, pairs[..., :d_model]))


def rotary_angles(n_time: Count, d_key: Count, *, base: Base = 10000.0, like: Array | None = None) -> Steps:
    """RoPE angles of each pair at each position. Steps: position, frequency, angle, cosine, sine.

    >>> rotary_angles(3, 4).angle
    array([[0.  , 0.  ],
           [1.  , 0.01],
           [2.  , 0.02]])
    """
    xp, (like,) = to_common_dtype(like=[0.0] if like is None else like)
    return Steps(*_cos_sin_steps(xp, _arange(xp, n_time, like), d_key, base))


def rotary(x: Array, *, positions: Array | None = None, base: Base = 10000.0, layout: str = "halves") -> Steps:
    """Rotary position embedding (RoPE): rotate each pair of dimensions of queries or keys by position times frequency.

    `x` is `[..., time, d_key]`; `positions` are 0, 1, 2 ... unless given.
    Steps: x, position, frequency, angle, cosine, sine, rotated_90, rotated.

    >>> rotary([[1., 0.], [1., 0.]]).rotated.round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    xp, (x, positions) = to_common_dtype(x=x, positions=positions)
    check_axes(x=x)
    if positions is None:
        positions = _arange(xp, x.shape[-2], x)
    if positions.shape != (x.shape[-2],):
        raise InvalidInput(
            f"positions is {format_shape(positions.shape)}, but x has {x.shape[-2]} tokens: pass one per token."
        )
    interleaved = lookup(layout, LAYOUTS, "layout")
    rotation = _cos_sin_steps(xp, positions, x.shape[-1], base)
    (_, cosine), (_, sine) = rotation[-2:]
    half = x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    rotated_90 = _join_pairs(xp, -second, first, interleaved)
    cosines, sines = (_join_pairs(xp, factor, factor, interleaved) for factor in (cosine, sine))
    rotated = x * cosines + rotated_90 * sines
    return Steps((_UNROTATED, x), *rotation, *zip(_ROTATED, (rotated_90, rotated), strict=True))


def alibi(
    heads: Annotated[int, Le(1 << 24)], n_query: Count, n_key: Count | None = None, *, like: Array | None = None
) -> Steps:
    """ALiBi, attention with linear biases, for `attend(bias=...)`. Steps: slope, distance, bias.

    The last query is aligned with the last key. The distance is absolute, ahead as behind.

    >>> alibi(2, 3).bias[0]
    array([[ 0.    , -0.0625, -0.125 ],
           [-0.0625,  0.    , -0.0625],
           [-0.125 , -0.0625,  0.    ]])
    """
    xp, (like,) = to_common_dtype(like=[0.0] if like is None else like)
    n_key = n_query if n_key is None else n_key
    slope = xp.asarray(alibi_slopes(heads), dtype=like.dtype, device=like.device)
    distance = xp.astype(xp.abs(position_distances(xp, n_query, n_key, like.device)), like.dtype)
    bias = slope[:, None, None] * (0 - distance)  # no negative zeros
    return Steps(*zip(_ALIBI, (slope, distance, bias), strict=True))


def alibi_slopes(heads: int) -> list[float]:
    """Return the ALiBi slope of each head: geometric, down to 2^-8.

    If the number of heads is not a power of two, the slopes of the next lower power come first,
    followed by every other slope of the next higher power.

    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    check_heads(heads)
    below = 1 << (int(heads).bit_length() - 1)
    slopes = [2.0 ** (-8 * head / below) for head in range(1, below + 1)]
    between = [2.0 ** (-4 * head / below) for head in range(1, 2 * below, 2)]
    return slopes + between[: heads - below]


def _join_pairs(xp: Namespace, first: Array, second: Array, interleaved: bool) -> Array:
    if interleaved:
        return xp.reshape(xp.stack((first, second), axis=-1), (*first.shape[:-1], 2 * first.shape[-1]))
    return xp.concat((first, second), axis=-1)


def _arange(xp: Namespace, n_time: int, like: Array) -> Array:
    return xp.arange(n_time, dtype=like.dtype, device=like.device)


def _angle_steps(xp: Namespace, positions: Array, width: int, base: float) -> StepArrays:
    """Return position, frequency, angle, cosine and sine with their captions."""
    pair = xp.arange((width + 1) // 2, dtype=positions.dtype, device=positions.device)
    frequency = base ** (-2 * pair / width)
    angle = positions[:, None] * frequency[None, :]
    return tuple(zip(_ANGLES, (positions, frequency, angle, xp.cos(angle), xp.sin(angle)), strict=True))


def _cos_sin_steps(xp: Namespace, positions: Array, width: int, base: float) -> StepArrays:
    if width % 2:
        raise InvalidInput(f"A width of {width} cannot be split into pairs.", hint="Use an even width.")
    return _angle_steps(xp, positions, width, base)
