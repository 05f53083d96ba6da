"""What a whole model is: one frozen class for each kind, told apart by `kind`, read by `peasy.config`.

A family (GPT-2, Llama, BERT, ...) is nothing but values of these.
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
    """The ids of tokens that are not text. `start` is what a decoder that answers an encoder begins with."""

    padding: int | None = None
    begin: int | None = None
    end: tuple[int, ...] = ()
    start: int | None = None
    mask: int | None = None
    unknown: int | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """Only looks back, predicts the next token."""

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
    """Looks both ways, gives each token and each text a vector.

    `pooler`: a learned map of the first token's vector. `pooling` says what a text's vector is;
    `normalise` makes it length 1. `longest`: texts are cut to so many tokens before they get a vector, where
    that is fewer than `context`. `head` None = no scores for masked words.
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
            raise InvalidInput("pooling is pooler, but there is none.", hint="Set pooler to true.")


@dataclass(frozen=True)
class EncoderDecoderConfig:
    """Reads a source both ways and answers with a target, one token at a time.

    `target_vocabulary` None = source and target share their token vectors.
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
    """One token after the other through a state: LSTM or GRU."""

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
    """Gated convolutions that only look back; layer i looks at every `spread`**i-th place."""

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
    """Counts of up to `order` words; orders are mixed, each seen continuation discounted by `discount`."""

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
    """A recurrent encoder (both ways) and a recurrent decoder that attends to it by additive scoring.

    Without `attends` the decoder knows of the source only the state that it begins with: one vector of fixed size.
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
    """Word vectors: the next word from `window` words before it, or each neighbour from a word (skip-gram)."""

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
"""Any model's settings; `read_config` and the key `kind` choose the class."""


def read_config(data: Any, where: str = "") -> Config:
    """The settings of a model from plain data.

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
        raise InvalidInput("context is missing.", hint="Learned positions need to know how many places there are.")
    for stack in stacks:
        heads = stack.attention.heads
        if stack.attention.d_head is None and config.d_model % heads:
            raise InvalidInput(
                f"d_model {config.d_model} cannot be split into {heads} heads.",
                hint="Choose heads that divide d_model, or set d_head.",
            )
        width = stack.attention.d_head or config.d_model // heads
        if isinstance(config.position, part.Rotary) and width % 2:
            raise InvalidInput(f"Heads of width {width} cannot be turned in pairs.", hint="Choose an even d_head.")
