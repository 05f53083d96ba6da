"""Layer configs: one small dataclass per variant of positions, norms, attention, MLP, embedding and LM head.

No tensors: reading a config does not import torch.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from peasy.errors import InvalidInput

Activation = Literal["relu", "relu-squared", "gelu", "gelu-tanh", "silu"]


def check(settings: Any, **least: float) -> None:
    """Raise if a field is below its minimum; None is always allowed."""
    for name, minimum in least.items():
        value = getattr(settings, name)
        if value is not None and not value >= minimum:
            raise InvalidInput(f"{name} is {value}.", hint=f"{name} must be at least {minimum:g}.")


# Position encodings.


@dataclass(frozen=True)
class Learned:
    """Learned absolute position embeddings; the first `offset` rows are unused."""

    kind: ClassVar[str] = "learned"
    offset: int = 0

    def __post_init__(self) -> None:
        check(self, offset=0)


@dataclass(frozen=True)
class Sinusoidal:
    """Sinusoidal position encoding: sines and cosines in pairs (the paper), or all sines first (halves)."""

    kind: ClassVar[str] = "sinusoidal"
    layout: Literal["pairs", "halves"] = "pairs"


@dataclass(frozen=True)
class LinearScaling:
    """Linear RoPE scaling: positions are divided by `factor`."""

    kind: ClassVar[str] = "linear"
    factor: float

    def __post_init__(self) -> None:
        check(self, factor=1)


@dataclass(frozen=True)
class BandScaling:
    """Llama 3 RoPE scaling: low frequencies are divided by `factor`, high ones kept, those between interpolated."""

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
    """Rotary position embedding (RoPE); the first half of a head is paired with the second."""

    kind: ClassVar[str] = "rotary"
    base: float = 10_000.0
    scaling: LinearScaling | BandScaling | None = None

    def __post_init__(self) -> None:
        check(self, base=1)


@dataclass(frozen=True)
class Alibi:
    """ALiBi: a bias that grows with the distance, with one slope per head; no position vectors."""

    kind: ClassVar[str] = "alibi"


@dataclass(frozen=True)
class Relative:
    """T5 relative position bias: one learned number per head and distance bucket, shared by all layers."""

    kind: ClassVar[str] = "relative"
    buckets: int = 32
    distance: int = 128

    def __post_init__(self) -> None:
        check(self, buckets=4, distance=self.buckets // 2 + 1)
        if self.buckets % 4:
            raise InvalidInput(f"buckets is {self.buckets}.", hint="buckets must be a multiple of 4.")


Position = Learned | Sinusoidal | Rotary | Alibi | Relative


# Normalisation layers.


@dataclass(frozen=True)
class LayerNorm:
    """LayerNorm, before each sublayer (pre-norm) or after it (post-norm, as in the paper)."""

    kind: ClassVar[str] = "layer"
    place: Literal["before", "after"] = "before"
    epsilon: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        check(self, epsilon=0)


@dataclass(frozen=True)
class RootNorm:
    """RMSNorm, before each sublayer (pre-norm) or after it (post-norm)."""

    kind: ClassVar[str] = "rms"
    place: Literal["before", "after"] = "before"
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check(self, epsilon=0)


Norm = LayerNorm | RootNorm


# Attention and MLP: the two sublayers of a block.


@dataclass(frozen=True)
class Attention:
    """Multi-head attention; grouped-query attention (GQA) where `num_kv_heads` is smaller than `heads`.

    `window`: sliding-window attention, in the layers listed in `windowed_layers` (None = all). `qk_norm`: normalise
    queries and keys. `scale`: factor of the scores, None = 1/sqrt(d_head).
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
        """Return the attention window of one layer, None = unlimited."""
        return self.window if self.windowed is None or layer in self.windowed else None


@dataclass(frozen=True)
class Plain:
    """Two-layer MLP: up projection, activation, down projection."""

    kind: ClassVar[str] = "plain"
    width: int
    activation: Activation = "gelu"
    bias: bool = True

    def __post_init__(self) -> None:
        check(self, width=1)


@dataclass(frozen=True)
class Gated:
    """Gated MLP (SwiGLU with silu): down(act(gate(x)) * up(x))."""

    kind: ClassVar[str] = "gated"
    width: int
    activation: Activation = "silu"
    bias: bool = False

    def __post_init__(self) -> None:
        check(self, width=1)


FeedForward = Plain | Gated


@dataclass(frozen=True)
class Stack:
    """Stack of identical Transformer blocks.

    `token_shift`: half of each input vector of attention and MLP comes from the previous token.
    """

    layers: int
    attention: Attention
    feedforward: FeedForward
    norm: Norm = LayerNorm()
    shift: bool = False

    def __post_init__(self) -> None:
        check(self, layers=1)


# Embedding and LM head.


@dataclass(frozen=True)
class Embedding:
    """Token embedding, optionally `scaled` by sqrt(d_model), with `segments` (token types) and a `norm`.

    `max_ngram`: hashed n-gram embeddings up to this length are added to each token's vector, with one table of
    `ngram_buckets` vectors per length.
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
    """LM head: from hidden states to logits.

    `tied`: shares the token embedding's weights. `scaled`: the input is divided by sqrt(d_model).
    `transform`: a linear layer, this activation and a norm come first (as in BERT).
    """

    tied: bool = True
    bias: bool = False
    scaled: bool = False
    transform: Activation | None = None
    softcap: float | None = None

    def __post_init__(self) -> None:
        if self.softcap is not None and self.softcap <= 0:
            raise InvalidInput(f"softcap is {self.softcap}.", hint="softcap must be above 0.")
