"""Where a token stands, told to attention: sinusoidal (added), rotary (turned) and ALiBi (taken off the scores)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peasy.errors import InvalidInput, named
from peasy.formula.arrays import times, together
from peasy.formula.axes import D_KEY, D_MODEL, HEAD, KEY, PAIR, QUERY, TIME
from peasy.formula.masks import distances
from peasy.formula.sizes import check_axes, check_heads
from peasy.formula.step import Array, Numbered, Step, Steps

PLACE = Step("place", "p", "Where each token stands, counted from 0.", (TIME,))
FREQUENCY = Step(
    "frequency",
    r"\omega_i = b^{-2i/d}",
    "How fast each pair of numbers turns: the first fastest, the last slowest.",
    (PAIR,),
)
ANGLE = Step("angle", r"p \omega_i", "How far each pair has turned at each place: place times frequency.", (TIME, PAIR))


@dataclass(frozen=True)
class Layout:
    """Which two numbers of a vector make a pair: `part` gives all firsts and all seconds, `join` undoes it."""

    name: str
    part: Callable[[Any, Array], tuple[Array, Array]]
    join: Callable[[Any, Array, Array], Array]


def _part_halves(xp: Any, x: Array) -> tuple[Array, Array]:
    half = (x.shape[-1] + 1) // 2
    return x[..., :half], x[..., half:]


def _join_halves(xp: Any, first: Array, second: Array) -> Array:
    return xp.concat((first, second), axis=-1)


def _part_neighbours(xp: Any, x: Array) -> tuple[Array, Array]:
    return x[..., 0::2], x[..., 1::2]


def _join_neighbours(xp: Any, first: Array, second: Array) -> Array:
    return xp.reshape(xp.stack((first, second), axis=-1), (*first.shape[:-1], 2 * first.shape[-1]))


LAYOUTS = {
    each.name: each
    for each in (
        Layout("halves", _part_halves, _join_halves),
        Layout("interleaved", _part_neighbours, _join_neighbours),
    )
}
"""halves: number i goes with number i + d/2. interleaved: number 2i goes with number 2i + 1."""


def sinusoidal(
    n_time: int,
    d_model: int,
    *,
    base: float = 10000.0,
    layout: str = "interleaved",
    like: Array | None = None,
) -> Steps:
    """The position vectors of 2017, to be added to the embeddings: place, frequency, angle, encoding.

    The numbers are of the library and kind of `like`; without it, NumPy's float64.

    >>> sinusoidal(2, 4).encoding.round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    xp, (like,) = together(like=[0.0] if like is None else like)
    turns = _turns(xp, _count(xp, n_time, like), d_model, base)
    angle = turns[-1][1]
    pairs = named(layout, LAYOUTS, "layout").join(xp, xp.sin(angle), xp.cos(angle))
    encoding = Step(
        "encoding",
        r"\sin(p \omega_i),\; \cos(p \omega_i)",
        "The sine and the cosine of each angle: near places get similar vectors.",
        (TIME, D_MODEL),
    )
    return Steps(*turns, (encoding, pairs[..., :d_model]))


def rotary_angles(n_time: int, d_key: int, *, base: float = 10000.0, like: Array | None = None) -> Steps:
    """How far each pair of numbers turns at each place: place, frequency, angle, cosine, sine.

    >>> rotary_angles(3, 4).angle
    array([[0.  , 0.  ],
           [1.  , 0.01],
           [2.  , 0.02]])
    """
    xp, (like,) = together(like=[0.0] if like is None else like)
    return Steps(*_rotation(xp, _count(xp, n_time, like), d_key, base))


def rotary(
    x: Array,
    *,
    places: Array | None = None,
    base: float = 10000.0,
    layout: str = "halves",
) -> Steps:
    """Queries or keys, each pair of numbers turned by an angle that grows with the place.

    `x` is `[..., time, d_key]`; `places` are 0, 1, 2 ... unless given, one for each time.
    Steps: x, place, frequency, angle, cosine, sine, turned, rotated.

    >>> rotary([[1., 0.], [1., 0.]]).rotated.round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    xp, (x, place) = together(x=x, places=places)
    check_axes(x=x)
    if place is None:
        place = _count(xp, x.shape[-2], x)
    if place.shape != (x.shape[-2],):
        raise InvalidInput(f"places is {times(place.shape)}, but x has {x.shape[-2]} times: give one place for each.")
    pairs = named(layout, LAYOUTS, "layout")
    rotation = _rotation(xp, place, x.shape[-1], base)
    (_, cosine), (_, sine) = rotation[-2:]
    first, second = pairs.part(xp, x)
    turned = pairs.join(xp, -second, first)
    rotated = x * pairs.join(xp, cosine, cosine) + turned * pairs.join(xp, sine, sine)
    return Steps(
        (Step("x", "x", "The queries or keys before they are turned.", (TIME, D_KEY)), x),
        *rotation,
        (Step("turned", r"\tilde{x}", "Each pair turned by a quarter: (a, b) becomes (-b, a).", (TIME, D_KEY)), turned),
        (
            Step(
                "rotated",
                r"x \cos(p \omega) + \tilde{x} \sin(p \omega)",
                "Each pair turned by its angle; a dot product then depends only on how far apart two tokens are.",
                (TIME, D_KEY),
            ),
            rotated,
        ),
    )


def alibi(heads: int, n_query: int, n_key: int | None = None, *, like: Array | None = None) -> Steps:
    """Attention with linear biases: slope, distance, bias; the bias goes to `attend(bias=...)`.

    The last query stands at the last key. Keys ahead are as far as keys behind.

    >>> alibi(2, 3).bias[0]
    array([[ 0.    , -0.0625, -0.125 ],
           [-0.0625,  0.    , -0.0625],
           [-0.125 , -0.0625,  0.    ]])
    """
    xp, (like,) = together(like=[0.0] if like is None else like)
    n_key = n_query if n_key is None else n_key
    slope = xp.asarray(alibi_slopes(heads), dtype=like.dtype, device=like.device)
    distance = xp.astype(xp.abs(distances(xp, n_query, n_key, like.device)), like.dtype)
    return Steps(
        (Step("slope", "m_h", "How strongly each head minds distance.", (HEAD,)), slope),
        (
            Step("distance", r"\lvert i - j \rvert", "How many places lie between query and key.", (QUERY, KEY)),
            distance,
        ),
        (
            Step("bias", r"-m_h \lvert i - j \rvert", "What distance takes off each score.", (HEAD, QUERY, KEY)),
            slope[:, None, None] * (0 - distance),  # no negative zeros
        ),
    )


def alibi_slopes(heads: int) -> list[float]:
    """One slope a head, falling geometrically to 2^-8.

    Where the heads are no power of two, those of the power below come first and are
    filled up with every other slope of the power above.

    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    check_heads(heads)
    below = 1 << (int(heads).bit_length() - 1)
    slopes = [2.0 ** (-8 * head / below) for head in range(1, below + 1)]
    between = [2.0 ** (-4 * head / below) for head in range(1, 2 * below, 2)]
    return slopes + between[: heads - below]


def _count(xp: Any, n_time: int, like: Array) -> Array:
    return xp.arange(n_time, dtype=like.dtype, device=like.device)


def _turns(xp: Any, place: Array, width: int, base: float) -> Numbered:
    pair = xp.arange((width + 1) // 2, dtype=place.dtype, device=place.device)
    frequency = base ** (-2 * pair / width)
    return (PLACE, place), (FREQUENCY, frequency), (ANGLE, place[:, None] * frequency[None, :])


def _rotation(xp: Any, place: Array, width: int, base: float) -> Numbered:
    if width % 2:
        raise InvalidInput(f"A width of {width} cannot be parted into pairs.", hint="Give an even width.")
    turns = _turns(xp, place, width, base)
    angle = turns[-1][1]
    return (
        *turns,
        (Step("cosine", r"\cos(p \omega_i)", "How much of each number stays.", (TIME, PAIR)), xp.cos(angle)),
        (Step("sine", r"\sin(p \omega_i)", "How much of its partner comes in.", (TIME, PAIR)), xp.sin(angle)),
    )
