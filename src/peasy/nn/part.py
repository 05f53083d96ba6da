"""What a part of a model is made of, as settings: each choice is a small class with only its own fields.

These are numbers and words, no tensors: reading a configuration does not import torch.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from peasy.errors import InvalidInput

Activation = Literal["relu", "relu-squared", "gelu", "gelu-tanh", "silu"]


def check(settings: Any, **least: float) -> None:
    """Refuse a number below its least value; None is always allowed."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        if value is not None and not value >= smallest:
            raise InvalidInput(f"{name} is {value}.", hint=f"{name} must be at least {smallest:g}.")


# Positions: where a token stands in its text.


@dataclass(frozen=True)
class Learned:
    """One learned vector for each place, added to the token's; `offset` places at the start are never used."""

    kind: ClassVar[str] = "learned"
    offset: int = 0

    def __post_init__(self) -> None:
        check(self, offset=0)


@dataclass(frozen=True)
class Sinusoidal:
    """Sines and cosines of the place, added to the token's vector; in pairs (the paper) or all sines first (halves)."""

    kind: ClassVar[str] = "sinusoidal"
    layout: Literal["pairs", "halves"] = "pairs"


@dataclass(frozen=True)
class LinearScaling:
    """Places are divided by `factor`."""

    kind: ClassVar[str] = "linear"
    factor: float

    def __post_init__(self) -> None:
        check(self, factor=1)


@dataclass(frozen=True)
class BandScaling:
    """Slow turns are divided by `factor`, fast ones are kept, those between are mixed (as in Llama 3)."""

    kind: ClassVar[str] = "bands"
    factor: float
    low: float
    high: float
    context: int

    def __post_init__(self) -> None:
        check(self, factor=1, low=1e-6, context=1)
        if self.high <= self.low:
            raise InvalidInput(f"high is {self.high} and low is {self.low}.", hint="high must be above low.")


@dataclass(frozen=True)
class Rotary:
    """Queries and keys are turned by their place; the first half of a head is paired with the second."""

    kind: ClassVar[str] = "rotary"
    base: float = 10_000.0
    scaling: LinearScaling | BandScaling | None = None

    def __post_init__(self) -> None:
        check(self, base=1)


@dataclass(frozen=True)
class Alibi:
    """Scores fall with the distance, with another slope in each head; no vectors of place at all."""

    kind: ClassVar[str] = "alibi"


@dataclass(frozen=True)
class Relative:
    """One learned number for each head and bucket of distances, added to the scores of every layer."""

    kind: ClassVar[str] = "relative"
    buckets: int = 32
    distance: int = 128

    def __post_init__(self) -> None:
        check(self, buckets=4, distance=self.buckets // 2 + 1)
        if self.buckets % 4:
            raise InvalidInput(f"buckets is {self.buckets}.", hint="buckets must be a multiple of 4.")


Position = Learned | Sinusoidal | Rotary | Alibi | Relative


# Norms: keeping vectors at one size.


@dataclass(frozen=True)
class LayerNorm:
    """Mean 0 and variance 1, then weight and bias; before each sublayer or after (the paper)."""

    kind: ClassVar[str] = "layer"
    place: Literal["before", "after"] = "before"
    epsilon: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        check(self, epsilon=0)


@dataclass(frozen=True)
class RootNorm:
    """Divided by the root of the mean square, then weight."""

    kind: ClassVar[str] = "rms"
    place: Literal["before", "after"] = "before"
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check(self, epsilon=0)


Norm = LayerNorm | RootNorm


# Attention and feed-forward: the two sublayers.


@dataclass(frozen=True)
class Attention:
    """Heads and how they look.

    `key_heads` fewer than `heads` are shared in groups. `window`: only keys fewer than so many places away,
    in the layers named by `windowed` (None = all). `scale` None = one over the root of the head's width.
    """

    heads: int
    key_heads: int | None = None
    d_head: int | None = None
    bias: bool = True
    output_bias: bool = True
    window: int | None = None
    windowed: tuple[int, ...] | None = None
    norm_heads: bool = False
    scale: float | None = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        check(self, heads=1, key_heads=1, d_head=1, window=1, scale=0)
        if self.softcap is not None and self.softcap <= 0:
            raise InvalidInput(f"softcap is {self.softcap}.", hint="softcap must be above 0.")
        if self.heads % (self.key_heads or self.heads):
            raise InvalidInput(
                f"{self.heads} query heads cannot share {self.key_heads} key heads evenly.",
                hint="heads must be a multiple of key_heads.",
            )

    def window_of(self, layer: int) -> int | None:
        """The window of one layer, None = no limit."""
        return self.window if self.windowed is None or layer in self.windowed else None


@dataclass(frozen=True)
class Plain:
    """Up, bend, down."""

    kind: ClassVar[str] = "plain"
    width: int
    activation: Activation = "gelu"
    bias: bool = True

    def __post_init__(self) -> None:
        check(self, width=1)


@dataclass(frozen=True)
class Gated:
    """Up times a bent gate, then down."""

    kind: ClassVar[str] = "gated"
    width: int
    activation: Activation = "silu"
    bias: bool = False

    def __post_init__(self) -> None:
        check(self, width=1)


FeedForward = Plain | Gated


@dataclass(frozen=True)
class Stack:
    """So many blocks, all alike.

    `shift`: half of what attention and feed-forward read of a token is what they read of the token before.
    """

    layers: int
    attention: Attention
    feedforward: FeedForward
    norm: Norm = LayerNorm()
    shift: bool = False

    def __post_init__(self) -> None:
        check(self, layers=1)


# The two ends: from ids to vectors and from vectors to the next word.


@dataclass(frozen=True)
class Embedding:
    """Token vectors, `scaled` by the root of their width; with vectors for `segments`; with a `norm` of their own.

    `ngrams`: each token also gets a vector for itself with the one before, and so on up to so many tokens together,
    each length from a table of `buckets` vectors that its n-grams share by chance.
    """

    scaled: bool = False
    segments: int = 0
    norm: bool = False
    ngrams: int = 1
    buckets: int = 16_384

    def __post_init__(self) -> None:
        check(self, segments=0, ngrams=1, buckets=1)


@dataclass(frozen=True)
class Head:
    """From the last vector to a score for each word.

    `tied`: the token vectors themselves are the weights. `scaled`: divided by the root of d_model first.
    `transform`: one more linear map, this activation and a norm come first.
    """

    tied: bool = True
    bias: bool = False
    scaled: bool = False
    transform: Activation | None = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        if self.softcap is not None and self.softcap <= 0:
            raise InvalidInput(f"softcap is {self.softcap}.", hint="softcap must be above 0.")
