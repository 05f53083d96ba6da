"""Model configs: one frozen dataclass per kind of model, read by `peasy.config` and selected by `kind`.

A family (GPT-2, Llama, BERT, ...) is only a set of values of these.
"""
# ruff: noqa: RUF009 (frozen defaults may be shared)

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from peasy import config as reader
from peasy.errors import InvalidInput
from peasy.nn import config as nn_config
from peasy.nn.config import check_minimums


@dataclass(frozen=True)
class SpecialTokensConfig:
    """Ids of the special tokens: pad, bos, eos, decoder_start, mask, unk.

    `decoder_start` is the first token of the decoder in an encoder-decoder model.
    """

    pad: int | None = None
    bos: int | None = None
    eos: tuple[int, ...] = ()
    decoder_start: int | None = None
    mask: int | None = None
    unk: int | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """Causal decoder that predicts the next token."""

    kind: ClassVar[str] = "decoder"
    vocab_size: int
    d_model: int
    stack: nn_config.StackConfig
    max_seq_len: int | None = None
    position: nn_config.PositionConfig | None = nn_config.LearnedPositionConfig()
    embedding: nn_config.EmbeddingConfig = nn_config.EmbeddingConfig()
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    dropout: float = 0.0
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        _check_transformer(self, self.stack)


@dataclass(frozen=True)
class EncoderConfig:
    """Bidirectional encoder: a vector for each token and each text.

    `pooler`: a learned layer on the first token's hidden state. `pooling` makes one vector of a text;
    `normalise` scales it to length 1. `max_length`: texts are truncated to this many tokens, if that is fewer than
    `max_seq_len`. `head` None = no masked-language-model head.
    """

    kind: ClassVar[str] = "encoder"
    vocab_size: int
    d_model: int
    stack: nn_config.StackConfig
    max_seq_len: int | None = None
    position: nn_config.PositionConfig | None = nn_config.LearnedPositionConfig()
    embedding: nn_config.EmbeddingConfig = nn_config.EmbeddingConfig()
    lm_head: nn_config.LMHeadConfig | None = None
    pooler: bool = False
    pooling: Literal["mean", "first", "max", "pooler"] = "mean"
    normalise: bool = True
    max_length: int | None = None
    dropout: float = 0.0
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        _check_transformer(self, self.stack)
        check_minimums(self, max_length=1)
        if self.pooling == "pooler" and not self.pooler:
            raise InvalidInput('pooling is "pooler", but the model has no pooler.', hint="Set pooler to true.")


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Encoder-decoder: encodes a source bidirectionally and decodes a target token by token.

    `target_vocab_size` None = source and target share the token embedding.
    """

    kind: ClassVar[str] = "encoder-decoder"
    vocab_size: int
    d_model: int
    encoder: nn_config.StackConfig
    decoder: nn_config.StackConfig
    target_vocab_size: int | None = None
    max_seq_len: int | None = None
    position: nn_config.PositionConfig | None = nn_config.SinusoidalPositionConfig()
    embedding: nn_config.EmbeddingConfig = nn_config.EmbeddingConfig()
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    dropout: float = 0.0
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        _check_transformer(self, self.encoder, self.decoder)
        check_minimums(self, target_vocab_size=1)


@dataclass(frozen=True)
class RecurrentConfig:
    """Recurrent language model: LSTM or GRU."""

    kind: ClassVar[str] = "recurrent"
    vocab_size: int
    d_model: int
    num_layers: int = 1
    cell: Literal["lstm", "gru"] = "lstm"
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    dropout: float = 0.0
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        _check_sizes(self, num_layers=1)


@dataclass(frozen=True)
class ConvolutionConfig:
    """Causal gated convolutions; layer i has dilation `dilation`**i."""

    kind: ClassVar[str] = "convolution"
    vocab_size: int
    d_model: int
    num_layers: int = 4
    kernel_size: int = 3
    dilation: int = 2
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    dropout: float = 0.0
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        _check_sizes(self, num_layers=1, kernel_size=2, dilation=1)


@dataclass(frozen=True)
class NGramConfig:
    """N-gram counts up to `order` tokens, interpolated, with absolute discounting by `discount`."""

    kind: ClassVar[str] = "ngram"
    vocab_size: int
    order: int = 3
    discount: float = 0.75
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        check_minimums(self, vocab_size=1, order=1)
        if not 0 < self.discount < 1:
            raise InvalidInput(f"discount is {self.discount}.", hint="discount must be between 0 and 1.")


@dataclass(frozen=True)
class RecurrentTranslatorConfig:
    """Bidirectional recurrent encoder and a recurrent decoder with additive attention.

    Without `use_attention` the decoder gets only the encoder's last state: one vector of fixed size.
    """

    kind: ClassVar[str] = "recurrent-translator"
    vocab_size: int
    d_model: int
    d_attention: int | None = None
    target_vocab_size: int | None = None
    num_layers: int = 1
    cell: Literal["lstm", "gru"] = "gru"
    use_attention: bool = True
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    dropout: float = 0.0
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        _check_sizes(self, num_layers=1, d_attention=1, target_vocab_size=1)
        if self.d_model % 2:
            raise InvalidInput(f"d_model is {self.d_model}.", hint="d_model must be even: half for each direction.")


@dataclass(frozen=True)
class Word2VecConfig:
    """Word vectors (word2vec): predict the next word from the `window` before it, or neighbours (skip-gram)."""

    kind: ClassVar[str] = "words"
    vocab_size: int
    d_model: int
    task: Literal["next", "skip-gram"] = "next"
    window: int = 1
    special_tokens: SpecialTokensConfig = SpecialTokensConfig()

    def __post_init__(self) -> None:
        check_minimums(self, vocab_size=1, d_model=1, window=1)


ModelConfig = (
    DecoderConfig
    | EncoderConfig
    | EncoderDecoderConfig
    | RecurrentConfig
    | ConvolutionConfig
    | NGramConfig
    | RecurrentTranslatorConfig
    | Word2VecConfig
)
"""The config of any model; `read_config` selects the class by the key `kind`."""


def read_config(data: Any, where: str = "") -> ModelConfig:
    """Read a model config from plain data.

    >>> read_config({"kind": "ngram", "vocabulary": 50}).order
    3
    """
    return reader.read(ModelConfig, data, where)  # type: ignore[arg-type]  # a union is not a type to mypy


def _check_sizes(config: Any, **least: float) -> None:
    check_minimums(config, vocab_size=1, d_model=1, dropout=0, **least)
    if config.dropout >= 1:
        raise InvalidInput(f"dropout is {config.dropout}.", hint="dropout must be at least 0 and below 1.")


def _check_transformer(config: Any, *stacks: nn_config.StackConfig) -> None:
    _check_sizes(config, max_seq_len=1)
    if isinstance(config.position, nn_config.LearnedPositionConfig) and config.max_seq_len is None:
        raise InvalidInput("max_seq_len is missing.", hint="Learned positions need a maximum sequence length.")
    for stack in stacks:
        heads = stack.attention.num_heads
        if stack.attention.d_head is None and config.d_model % heads:
            raise InvalidInput(
                f"d_model {config.d_model} cannot be split into {heads} heads.",
                hint="Choose heads that divide d_model, or set d_head.",
            )
        width = stack.attention.d_head or config.d_model // heads
        if isinstance(config.position, nn_config.RotaryConfig) and width % 2:
            raise InvalidInput(f"Rotary positions need an even head width, not {width}.", hint="Choose an even d_head.")
