"""Layer configs: one small dataclass per variant of positions, norms, attention, MLP, embedding and LM head.

No tensors: reading a config does not import torch.
"""

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from peasy.errors import InvalidInput
from peasy.parameters import BoundedSettings, FrozenSettings

ActivationName = Literal["relu", "relu-squared", "gelu", "gelu-tanh", "silu", "tanh"]


Size = Annotated[int, Ge(1)]
"""Number of rows, heads, layers or dimensions."""
_SoftCap = Annotated[float, Gt(0)]


# Position encodings.


class RelativeBiasConfig(BoundedSettings):
    """T5 relative position bias: one learned number per head and distance bucket, shared by all layers."""

    kind: ClassVar[str] = "relative"
    num_buckets: Annotated[int, Ge(4)] = 32
    """Number of distance buckets; a multiple of 4."""
    max_distance: int = 128
    """Distance in tokens from which on all share the last bucket; above half of num_buckets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_buckets % 4:
            raise InvalidInput(f"num_buckets is {self.num_buckets}.", hint="num_buckets must be a multiple of 4.")
        if self.max_distance <= self.num_buckets // 2:
            hint = f"max_distance must be above half of num_buckets, {self.num_buckets // 2}."
            raise InvalidInput(f"max_distance is {self.max_distance}.", hint=hint)


class LearnedPositionConfig(BoundedSettings):
    """Learned absolute position embeddings; the first `offset` rows are unused."""

    kind: ClassVar[str] = "learned"
    offset: Annotated[int, Ge(0)] = 0
    """Unused rows at the start of the position table."""
    relative: RelativeBiasConfig | None = None
    """Relative position bias, in addition; null: none."""


class SinusoidalPositionConfig(BoundedSettings):
    """Sinusoidal position encoding: sines and cosines in pairs (the paper), or all sines first (halves)."""

    kind: ClassVar[str] = "sinusoidal"
    layout: Literal["pairs", "halves"] = "pairs"
    """Order of the components: sine and cosine in pairs, or all sines first (halves)."""
    offset: Annotated[int, Ge(0)] = 0
    """Position of the first token."""
    reaches_base: bool = False
    """Whether the lowest frequency is exactly 1/10000; in the paper it is one step above."""


class LinearRopeScaling(BoundedSettings):
    """Linear RoPE scaling: positions are divided by `factor`."""

    kind: ClassVar[str] = "linear"
    factor: Annotated[float, Ge(1)]
    """Divisor of the positions."""


class Llama3RopeScaling(BoundedSettings):
    """Llama 3 RoPE scaling: low frequencies are divided by `factor`, high ones kept, those between interpolated."""

    kind: ClassVar[str] = "llama3"
    factor: Annotated[float, Ge(1)]
    """Divisor of the low frequencies."""
    low_freq_factor: Annotated[float, Gt(0)]
    """Frequencies with fewer periods than this in the original length are divided by factor."""
    high_freq_factor: float
    """Frequencies with more periods than this in the original length are kept; above low_freq_factor."""
    original_max_seq_len: Size
    """Maximum sequence length of the original training, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high_freq_factor <= self.low_freq_factor:
            message = f"high_freq_factor is {self.high_freq_factor} and low_freq_factor is {self.low_freq_factor}."
            raise InvalidInput(message, hint="high_freq_factor must be above low_freq_factor.")


class YarnRopeScaling(BoundedSettings):
    """YaRN RoPE scaling: frequencies between `beta_fast` and `beta_slow` periods are interpolated, queries scaled."""

    kind: ClassVar[str] = "yarn"
    factor: Annotated[float, Ge(1)]
    """Divisor of the low frequencies."""
    original_max_seq_len: Size
    """Maximum sequence length of the original training, in tokens."""
    beta_fast: Annotated[float, Gt(0)] = 32.0
    """Frequencies with more periods than this in the original length are kept."""
    beta_slow: Annotated[float, Gt(0)] = 1.0
    """Frequencies with fewer periods than this in the original length are divided by factor."""
    attention_factor: Annotated[float, Gt(0)] | None = None
    """Factor of cosine and sine; null: 0.1 ln(factor) + 1."""
    truncate: bool = True
    """Whether the interpolated range is extended to whole pairs of dimensions."""


class LongRopeScaling(BoundedSettings):
    """LongRoPE scaling: each frequency is divided by its own factor, up to the original length by `short_factors`."""

    kind: ClassVar[str] = "longrope"
    short_factors: tuple[float, ...]
    """Divisor of each frequency, for sequences up to the original length."""
    long_factors: tuple[float, ...]
    """Divisor of each frequency for longer sequences; kept for export, as peasy computes only the shorter ones."""
    original_max_seq_len: Size
    """Maximum sequence length of the original training, in tokens."""
    attention_factor: Annotated[float, Gt(0)] = 1.0
    """Factor of cosine and sine."""


RopeScaling = LinearRopeScaling | Llama3RopeScaling | YarnRopeScaling | LongRopeScaling


class RotaryConfig(BoundedSettings):
    """Rotary position embedding (RoPE); the first half of a head is paired with the second."""

    kind: ClassVar[str] = "rotary"
    base: Annotated[float, Ge(1)] = 10_000.0
    """Base of the geometric series of wavelengths (theta)."""
    scaling: RopeScaling | None = None
    """RoPE scaling to longer sequences; null: none."""
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of each head that is rotated: its first dimensions (partial rotary embedding)."""
    local_base: Annotated[float, Ge(1)] | None = None
    """Base in the layers with sliding-window attention, which are not scaled; null: like the other layers."""
    skipped_layers: tuple[int, ...] = ()
    """Layers without rotation (NoPE), from 0 on."""

    def rotated_width(self, d_head: int) -> int:
        """Return how many dimensions of a head are rotated."""
        return int(d_head * self.share)


class AlibiConfig(FrozenSettings):
    """ALiBi: a bias that grows with the distance, with one slope per head; no position vectors."""

    kind: ClassVar[str] = "alibi"


PositionConfig = LearnedPositionConfig | SinusoidalPositionConfig | RotaryConfig | AlibiConfig | RelativeBiasConfig


# Normalisation layers.

_NormPlacement = Literal["pre", "post", "output", "around"]


class LayerNormConfig(BoundedSettings):
    """LayerNorm before each sublayer (pre-norm), after it (post-norm, as in the paper), on its output, or around it."""

    kind: ClassVar[str] = "layer"
    placement: _NormPlacement = "pre"
    """Before each sublayer (pre), after its residual sum (post), on its output (output), or pre and output (around)."""
    eps: Annotated[float, Ge(0)] = 1e-5
    """Added to the variance."""
    bias: bool = True
    """Whether the norm has a bias."""


class RMSNormConfig(BoundedSettings):
    """RMSNorm before each sublayer (pre-norm), after it (post-norm), on its output, or around it."""

    kind: ClassVar[str] = "rms"
    placement: _NormPlacement = "pre"
    """Before each sublayer (pre), after its residual sum (post), on its output (output), or pre and output (around)."""
    eps: Annotated[float, Ge(0)] = 1e-6
    """Added to the mean square."""
    unit_offset: bool = False
    """Whether 1 is added to the weight, which then starts at 0."""


NormConfig = LayerNormConfig | RMSNormConfig


# Attention and MLP: the two sublayers of a block.


class AttentionConfig(BoundedSettings):
    """Multi-head attention; grouped-query attention (GQA) where `num_kv_heads` is smaller than `num_heads`."""

    num_heads: Size
    """Number of query heads."""
    num_kv_heads: Size | None = None
    """Number of key-value heads (GQA); must divide num_heads. null: num_heads."""
    d_head: Size | None = None
    """Width of a head; null: d_model / num_heads."""
    bias: bool = True
    """Whether the query, key and value projections have a bias."""
    output_bias: bool = True
    """Whether the output projection has a bias."""
    window: Size | None = None
    """Sliding-window attention: how many tokens a query attends to; null: unlimited."""
    windowed_layers: tuple[int, ...] | None = None
    """Layers with sliding-window attention, from 0 on; null: all."""
    qk_norm: bool = False
    """Whether queries and keys are normalised."""
    scale: Annotated[float, Gt(0)] | None = None
    """Factor of the attention scores; null: 1/sqrt(d_head)."""
    softcap: _SoftCap | None = None
    """Soft cap of the attention scores: cap * tanh(score / cap), above 0; null: none."""
    qk_norm_over: Literal["head", "projection"] = "head"
    """Whether each head is normalised by itself, or all heads together."""
    sinks: bool = False
    """Whether each head has a learned sink: a score without a key, to which a query can give its weight."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_heads % (self.num_kv_heads or self.num_heads):
            message = f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads evenly."
            raise InvalidInput(message, hint="num_heads must be a multiple of num_kv_heads.")

    def window_for_layer(self, layer: int) -> int | None:
        """Return the attention window of one layer, None = unlimited."""
        return self.window if self.windowed_layers is None or layer in self.windowed_layers else None


class MLPConfig(BoundedSettings):
    """Two-layer MLP: up projection, activation, down projection."""

    kind: ClassVar[str] = "mlp"
    d_ff: Size
    """Width of the hidden layer."""
    activation: ActivationName = "gelu"
    """Activation function."""
    bias: bool = True
    """Whether the projections have a bias."""


class GatedMLPConfig(BoundedSettings):
    """Gated MLP (SwiGLU with silu): down(act(gate(x)) * up(x))."""

    kind: ClassVar[str] = "gated"
    d_ff: Size
    """Width of the hidden layer."""
    activation: ActivationName = "silu"
    """Activation function of the gate."""
    bias: bool = False
    """Whether the projections have a bias."""


FeedForwardConfig = MLPConfig | GatedMLPConfig


class StackConfig(BoundedSettings):
    """Stack of identical Transformer blocks."""

    num_layers: Size
    """Number of Transformer blocks."""
    attention: AttentionConfig
    """Attention of each block."""
    feedforward: FeedForwardConfig
    """MLP of each block."""
    norm: NormConfig = LayerNormConfig()
    """Normalisation of each sublayer."""
    token_shift: bool = False
    """Whether half of each input vector of attention and MLP comes from the previous token."""
    parallel: bool = False
    """Whether attention and MLP of a block both read its input (parallel residual), not one after the other."""
    residual_scale: Annotated[float, Ge(0)] = 1.0
    """Factor of each sublayer's output before it is added to the residual stream."""
    shared_norm: bool = False
    """Whether attention and MLP of a parallel block read the same norm."""
    first_norm: bool = True
    """Whether the first block has a norm before its attention; without it, the embedding is normalised instead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared_norm and not (self.parallel and self.norm.placement == "pre"):
            raise InvalidInput("Only a parallel pre-norm block has one norm for both.", hint="Set parallel to true.")
        if self.parallel and self.norm.placement == "post":
            raise InvalidInput("A parallel residual cannot be post-norm.", hint='Set norm.placement to "pre".')


# Embedding and LM head.


class EmbeddingConfig(BoundedSettings):
    """Token embedding, with optional segments (token types) and hashed n-gram embeddings, which are added to it."""

    scaled: bool = False
    """Whether token embeddings are multiplied by sqrt(d_model)."""
    segments: Annotated[int, Ge(0)] = 0
    """Number of segment (token type) embeddings; 0: none."""
    norm: bool = False
    """Whether the sum of the embeddings is normalised."""
    max_ngram: Size = 1
    """Length of the longest hashed n-gram embedding; 1: none."""
    ngram_buckets: Size = 16_384
    """Vectors per table of n-gram embeddings."""
    multiplier: float = 1.0
    """Factor of the token embeddings."""
    width: Size | None = None
    """Width of the embeddings, which a linear layer then maps to d_model (factorised embedding); null: d_model."""


class LMHeadConfig(BoundedSettings):
    """LM head: from hidden states to logits."""

    tied: bool = True
    """Whether the head shares the weights of the token embedding."""
    bias: bool = False
    """Whether the logits have a bias."""
    scaled: bool = False
    """Whether the input is divided by sqrt(d_model)."""
    transform: ActivationName | None = None
    """Activation of a linear layer with a norm before the head (as in BERT); null: no such layer."""
    softcap: _SoftCap | None = None
    """Soft cap of the logits: cap * tanh(logit / cap), above 0; null: none."""
    divisor: Annotated[float, Gt(0)] = 1.0
    """Divisor of the logits."""
    transform_bias: bool = True
    """Whether the layer before the head has a bias."""


class DenseConfig(FrozenSettings):
    """Linear layer after pooling, as in sentence-transformers."""

    width: Size
    """Width of the vector of a text."""
    activation: ActivationName | None = "tanh"
    """Activation function; null: none."""
    bias: bool = True
    """Whether the layer has a bias."""


class ClassifierConfig(FrozenSettings):
    """Classification head: a label for each text, or one for each token."""

    labels: tuple[str, ...]
    """Names of the labels."""
    level: Literal["text", "token"] = "text"
    """Whether texts or tokens are classified."""
    pooling: Literal["first", "last", "mean", "pooler"] = "first"
    """How the hidden states become one vector of the text: of its first or last token, their mean, or by the pooler."""
    bias: bool = True
    """Whether the scores have a bias."""
    transform: ActivationName | None = None
    """Activation of a linear layer before the head; null: no such layer."""
    transform_bias: bool = True
    """Whether that layer has a bias."""
    transform_norm: bool = False
    """Whether a norm follows that layer."""
    multi_label: bool = False
    """Whether a text can have several labels: each has a probability of its own."""
