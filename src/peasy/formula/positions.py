"""Position encodings: sinusoidal, rotary, ALiBi."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peasy.errors import InvalidInput, lookup
from peasy.formula.arrays import format_shape, to_common_dtype
from peasy.formula.axes import D_KEY, D_MODEL, HEAD, KEY, PAIR, QUERY, TIME
from peasy.formula.masks import position_distances
from peasy.formula.shapes import check_axes, check_heads
from peasy.formula.step import Array, FormulaStep, StepArrays, Steps

POSITION = FormulaStep("position", "p", "The position of each token, counted from 0.", (TIME,))
FREQUENCY = FormulaStep(
    "frequency",
    r"\omega_i = b^{-2i/d}",
    "How fast each pair of dimensions rotates: the first fastest, the last slowest.",
    (PAIR,),
)
ANGLE = FormulaStep(
    "angle", r"p \omega_i", "The rotation angle of each pair at each position: position times frequency.", (TIME, PAIR)
)


@dataclass(frozen=True)
class PairLayout:
    """Which two dimensions form a pair: `split` returns all first and all second elements, `join` is its inverse."""

    name: str
    split: Callable[[Any, Array], tuple[Array, Array]]
    join: Callable[[Any, Array, Array], Array]


def _split_halves(xp: Any, x: Array) -> tuple[Array, Array]:
    half = (x.shape[-1] + 1) // 2
    return x[..., :half], x[..., half:]


def _join_halves(xp: Any, first: Array, second: Array) -> Array:
    return xp.concat((first, second), axis=-1)


def _split_interleaved(xp: Any, x: Array) -> tuple[Array, Array]:
    return x[..., 0::2], x[..., 1::2]


def _join_interleaved(xp: Any, first: Array, second: Array) -> Array:
    return xp.reshape(xp.stack((first, second), axis=-1), (*first.shape[:-1], 2 * first.shape[-1]))


LAYOUTS = {
    layout.name: layout
    for layout in (
        PairLayout("halves", _split_halves, _join_halves),
        PairLayout("interleaved", _split_interleaved, _join_interleaved),
    )
}
"""halves: dimension i is paired with i + d/2. interleaved: dimension 2i is paired with 2i + 1."""


def sinusoidal(
    n_time: int,
    d_model: int,
    *,
    base: float = 10000.0,
    layout: str = "interleaved",
    like: Array | None = None,
) -> Steps:
    """Sinusoidal position encoding (2017), to be added to the embeddings. Steps: position, frequency, angle, encoding.

    Library and dtype are those of `like`; without it, NumPy float64.

    >>> sinusoidal(2, 4).encoding.round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    xp, (like,) = to_common_dtype(like=[0.0] if like is None else like)
    steps = _angle_steps(xp, _arange(xp, n_time, like), d_model, base)
    angle = steps[-1][1]
    pairs = lookup(layout, LAYOUTS, "layout").join(xp, xp.sin(angle), xp.cos(angle))
    encoding = FormulaStep(
        "encoding",
        r"\sin(p \omega_i),\; \cos(p \omega_i)",
        "The sine and the cosine of each angle: nearby positions get similar vectors.",
        (TIME, D_MODEL),
    )
    return Steps(*steps, (encoding, pairs[..., :d_model]))


def rotary_angles(n_time: int, d_key: int, *, base: float = 10000.0, like: Array | None = None) -> Steps:
    """RoPE angles of each pair at each position. Steps: position, frequency, angle, cosine, sine.

    >>> rotary_angles(3, 4).angle
    array([[0.  , 0.  ],
           [1.  , 0.01],
           [2.  , 0.02]])
    """
    xp, (like,) = to_common_dtype(like=[0.0] if like is None else like)
    return Steps(*_cos_sin_steps(xp, _arange(xp, n_time, like), d_key, base))


def rotary(
    x: Array,
    *,
    positions: Array | None = None,
    base: float = 10000.0,
    layout: str = "halves",
) -> Steps:
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
    pairs = lookup(layout, LAYOUTS, "layout")
    rotation = _cos_sin_steps(xp, positions, x.shape[-1], base)
    (_, cosine), (_, sine) = rotation[-2:]
    first, second = pairs.split(xp, x)
    rotated_90 = pairs.join(xp, -second, first)
    rotated = x * pairs.join(xp, cosine, cosine) + rotated_90 * pairs.join(xp, sine, sine)
    return Steps(
        (FormulaStep("x", "x", "The queries or keys before rotation.", (TIME, D_KEY)), x),
        *rotation,
        (
            FormulaStep(
                "rotated_90", r"\tilde{x}", "Each pair rotated by 90 degrees: (a, b) becomes (-b, a).", (TIME, D_KEY)
            ),
            rotated_90,
        ),
        (
            FormulaStep(
                "rotated",
                r"x \cos(p \omega) + \tilde{x} \sin(p \omega)",
                "Each pair rotated by its angle; dot products then depend only on the distance between two tokens.",
                (TIME, D_KEY),
            ),
            rotated,
        ),
    )


def alibi(heads: int, n_query: int, n_key: int | None = None, *, like: Array | None = None) -> Steps:
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
    return Steps(
        (FormulaStep("slope", "m_h", "How strongly each head penalises distance.", (HEAD,)), slope),
        (
            FormulaStep(
                "distance", r"\lvert i - j \rvert", "The distance between query and key, in positions.", (QUERY, KEY)
            ),
            distance,
        ),
        (
            FormulaStep(
                "bias",
                r"-m_h \lvert i - j \rvert",
                "What is added to each score: minus slope times distance.",
                (HEAD, QUERY, KEY),
            ),
            slope[:, None, None] * (0 - distance),  # no negative zeros
        ),
    )


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


def _arange(xp: Any, n_time: int, like: Array) -> Array:
    return xp.arange(n_time, dtype=like.dtype, device=like.device)


def _angle_steps(xp: Any, positions: Array, width: int, base: float) -> StepArrays:
    pair = xp.arange((width + 1) // 2, dtype=positions.dtype, device=positions.device)
    frequency = base ** (-2 * pair / width)
    return (POSITION, positions), (FREQUENCY, frequency), (ANGLE, positions[:, None] * frequency[None, :])


def _cos_sin_steps(xp: Any, positions: Array, width: int, base: float) -> StepArrays:
    if width % 2:
        raise InvalidInput(f"A width of {width} cannot be split into pairs.", hint="Use an even width.")
    steps = _angle_steps(xp, positions, width, base)
    angle = steps[-1][1]
    return (
        *steps,
        (FormulaStep("cosine", r"\cos(p \omega_i)", "The factor of each element itself.", (TIME, PAIR)), xp.cos(angle)),
        (
            FormulaStep("sine", r"\sin(p \omega_i)", "The factor of the other element of its pair.", (TIME, PAIR)),
            xp.sin(angle),
        ),
    )
