"""Model configs: one frozen dataclass per kind of model, read by `peasy.config` and selected by `kind`.

A family (GPT-2, Llama, BERT, ...) is only a set of values of these.
"""
# ruff: noqa: RUF009 (frozen defaults may be shared)

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from peasy import config as reader
from peasy.errors import InvalidInput
from peasy.nn import part
from peasy.nn.part import check


@dataclass(frozen=True)
class Special:
    """Ids of the special tokens: pad, bos, eos, decoder_start, mask, unk.

    `decoder_start` is the first token of the decoder in an encoder-decoder model.
    """

    padding: int | None = None
    begin: int | None = None
    end: tuple[int, ...] = ()
    start: int | None = None
    mask: int | None = None
    unknown: int | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """Causal decoder that predicts the next token."""

    kind: ClassVar[str] = "decoder"
    vocabulary: int
    d_model: int
    stack: part.Stack
    context: int | None = None
    position: part.Position | None = part.Learned()
    embedding: part.Embedding = part.Embedding()
    head: part.Head = part.Head()
    dropout: float = 0.0
    special: Special = Special()

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
    vocabulary: int
    d_model: int
    stack: part.Stack
    context: int | None = None
    position: part.Position | None = part.Learned()
    embedding: part.Embedding = part.Embedding()
    head: part.Head | None = None
    pooler: bool = False
    pooling: Literal["mean", "first", "max", "pooler"] = "mean"
    normalise: bool = True
    longest: int | None = None
    dropout: float = 0.0
    special: Special = Special()

    def __post_init__(self) -> None:
        _check_transformer(self, self.stack)
        check(self, longest=1)
        if self.pooling == "pooler" and not self.pooler:
            raise InvalidInput('pooling is "pooler", but the model has no pooler.', hint="Set pooler to true.")


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Encoder-decoder: encodes a source bidirectionally and decodes a target token by token.

    `target_vocab_size` None = source and target share the token embedding.
    """

    kind: ClassVar[str] = "encoder-decoder"
    vocabulary: int
    d_model: int
    encoder: part.Stack
    decoder: part.Stack
    target_vocabulary: int | None = None
    context: int | None = None
    position: part.Position | None = part.Sinusoidal()
    embedding: part.Embedding = part.Embedding()
    head: part.Head = part.Head()
    dropout: float = 0.0
    special: Special = Special()

    def __post_init__(self) -> None:
        _check_transformer(self, self.encoder, self.decoder)
        check(self, target_vocabulary=1)


@dataclass(frozen=True)
class RecurrentConfig:
    """Recurrent language model: LSTM or GRU."""

    kind: ClassVar[str] = "recurrent"
    vocabulary: int
    d_model: int
    layers: int = 1
    cell: Literal["lstm", "gru"] = "lstm"
    head: part.Head = part.Head()
    dropout: float = 0.0
    special: Special = Special()

    def __post_init__(self) -> None:
        _check_sizes(self, layers=1)


@dataclass(frozen=True)
class ConvolutionConfig:
    """Causal gated convolutions; layer i has dilation `dilation`**i."""

    kind: ClassVar[str] = "convolution"
    vocabulary: int
    d_model: int
    layers: int = 4
    width: int = 3
    spread: int = 2
    head: part.Head = part.Head()
    dropout: float = 0.0
    special: Special = Special()

    def __post_init__(self) -> None:
        _check_sizes(self, layers=1, width=2, spread=1)


@dataclass(frozen=True)
class NGramConfig:
    """N-gram counts up to `order` tokens, interpolated, with absolute discounting by `discount`."""

    kind: ClassVar[str] = "ngram"
    vocabulary: int
    order: int = 3
    discount: float = 0.75
    special: Special = Special()

    def __post_init__(self) -> None:
        check(self, vocabulary=1, order=1)
        if not 0 < self.discount < 1:
            raise InvalidInput(f"discount is {self.discount}.", hint="discount must be between 0 and 1.")


@dataclass(frozen=True)
class RecurrentTranslatorConfig:
    """Bidirectional recurrent encoder and a recurrent decoder with additive attention.

    Without `use_attention` the decoder gets only the encoder's last state: one vector of fixed size.
    """

    kind: ClassVar[str] = "recurrent-translator"
    vocabulary: int
    d_model: int
    d_attention: int | None = None
    target_vocabulary: int | None = None
    layers: int = 1
    cell: Literal["lstm", "gru"] = "gru"
    attends: bool = True
    head: part.Head = part.Head()
    dropout: float = 0.0
    special: Special = Special()

    def __post_init__(self) -> None:
        _check_sizes(self, layers=1, d_attention=1, target_vocabulary=1)
        if self.d_model % 2:
            raise InvalidInput(f"d_model is {self.d_model}.", hint="d_model must be even: half for each direction.")


@dataclass(frozen=True)
class WordsConfig:
    """Word vectors (word2vec): predict the next word from the `window` before it, or neighbours (skip-gram)."""

    kind: ClassVar[str] = "words"
    vocabulary: int
    d_model: int
    task: Literal["next", "skip-gram"] = "next"
    window: int = 1
    special: Special = Special()

    def __post_init__(self) -> None:
        check(self, vocabulary=1, d_model=1, window=1)


Config = (
    DecoderConfig
    | EncoderConfig
    | EncoderDecoderConfig
    | RecurrentConfig
    | ConvolutionConfig
    | NGramConfig
    | RecurrentTranslatorConfig
    | WordsConfig
)
"""The config of any model; `read_config` selects the class by the key `kind`."""


def read_config(data: Any, where: str = "") -> Config:
    """Read a model config from plain data.

    >>> read_config({"kind": "ngram", "vocabulary": 50}).order
    3
    """
    return reader.read(Config, data, where)  # type: ignore[arg-type]  # a union is not a type to mypy


def _check_sizes(config: Any, **least: float) -> None:
    check(config, vocabulary=1, d_model=1, dropout=0, **least)
    if config.dropout >= 1:
        raise InvalidInput(f"dropout is {config.dropout}.", hint="dropout must be at least 0 and below 1.")


def _check_transformer(config: Any, *stacks: part.Stack) -> None:
    _check_sizes(config, context=1)
    if isinstance(config.position, part.Learned) and config.context is None:
        raise InvalidInput("context is missing.", hint="Learned positions need a maximum sequence length.")
    for stack in stacks:
        heads = stack.attention.heads
        if stack.attention.d_head is None and config.d_model % heads:
            raise InvalidInput(
                f"d_model {config.d_model} cannot be split into {heads} heads.",
                hint="Choose heads that divide d_model, or set d_head.",
            )
        width = stack.attention.d_head or config.d_model // heads
        if isinstance(config.position, part.Rotary) and width % 2:
            raise InvalidInput(f"Rotary positions need an even head width, not {width}.", hint="Choose an even d_head.")
