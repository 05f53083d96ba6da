"""Model configs: one frozen dataclass per kind of model, read by `peasy.config` and selected by `kind`.

A family (GPT-2, Llama, BERT, ...) is only a set of values of these.
"""

from dataclasses import field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from peasy import config as reader
from peasy.errors import InvalidInput
from peasy.nn import config as nn_config
from peasy.nn.config import Size
from peasy.parameters import BoundedSettings, FrozenSettings


class SpecialTokensConfig(FrozenSettings):
    """Ids of the special tokens."""

    pad: int | None = None
    """Id of the padding token; null: none."""
    bos: int | None = None
    """Id of the beginning-of-sequence token; null: none."""
    eos: tuple[int, ...] = ()
    """Ids of the end-of-sequence tokens."""
    decoder_start: int | None = None
    """Id of the decoder's first token in an encoder-decoder model; null: none."""
    mask: int | None = None
    """Id of the mask token; null: none."""
    unk: int | None = None
    """Id of the token for unknown text; null: none."""
    forced_bos: int | None = None
    """Id of the decoder's second token, such as the language of a translation; null: the model chooses it."""

    @property
    def decoder_prompt(self) -> list[int]:
        """Ids with which the decoder of an encoder-decoder model starts."""
        return [id for id in (self.decoder_start, self.forced_bos) if id is not None]


class _BaseConfig(BoundedSettings):
    """Settings of every model."""

    vocab_size: Size
    """Vocabulary size, in tokens; by default that of the tokenizer."""
    special_tokens: SpecialTokensConfig = field(default=SpecialTokensConfig(), kw_only=True)
    """Ids of the special tokens; by default those of the tokenizer."""


class _NetworkConfig(_BaseConfig):
    """Settings of every neural language model."""

    d_model: Size
    """Width of the model (embedding dimension)."""
    dropout: Annotated[float, Ge(0), Lt(1)] = field(default=0.0, kw_only=True)
    """Dropout probability, below 1."""


class _SingleStackConfig(_NetworkConfig):
    """Settings of a model with one stack of Transformer blocks."""

    stack: nn_config.StackConfig
    """Transformer blocks."""
    max_seq_len: Size | None = None
    """Maximum sequence length, in tokens; null: unlimited."""
    position: nn_config.PositionConfig | None = nn_config.LearnedPositionConfig()
    """Position encoding; null: none."""
    embedding: nn_config.EmbeddingConfig = nn_config.EmbeddingConfig()
    """Token embedding."""


class DecoderConfig(_SingleStackConfig):
    """Causal decoder that predicts the next token."""

    kind: ClassVar[str] = "decoder"
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    """Language-model head."""
    classifier: nn_config.ClassifierConfig | None = None
    """Classification head, which replaces the language-model head; null: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_transformer(self, self.stack)
        if self.classifier is not None and self.classifier.pooling not in ("last", "first"):
            raise InvalidInput(f"A decoder's classifier cannot pool with {self.classifier.pooling}.", hint="Use last.")


class EncoderConfig(_SingleStackConfig):
    """Bidirectional encoder: a vector for each token and each text."""

    kind: ClassVar[str] = "encoder"
    lm_head: nn_config.LMHeadConfig | None = None
    """Head for masked-token prediction; null: none."""
    pooler: bool = False
    """Whether there is a learned layer on the first token's hidden state."""
    pooling: Literal["mean", "first", "max", "pooler"] = "mean"
    """How the hidden states become one vector of the text."""
    normalise: bool = True
    """Whether that vector is scaled to length 1."""
    max_length: Size | None = None
    """Texts are truncated to this many tokens; null: to max_seq_len."""
    dense: nn_config.DenseConfig | None = None
    """Layer from the pooled vector to the vector of the text; null: none."""
    classifier: nn_config.ClassifierConfig | None = None
    """Classification head; null: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_transformer(self, self.stack)
        if self.pooling == "pooler" and not self.pooler:
            raise InvalidInput('pooling is "pooler", but the model has no pooler.', hint="Set pooler to true.")
        if self.classifier is not None and self.classifier.pooling == "pooler" and not self.pooler:
            raise InvalidInput("The classifier needs a pooler, which the model does not have.")


class EncoderDecoderConfig(_NetworkConfig):
    """Encoder-decoder: encodes a source bidirectionally and decodes a target token by token."""

    kind: ClassVar[str] = "encoder-decoder"
    encoder: nn_config.StackConfig
    """Transformer blocks of the encoder."""
    decoder: nn_config.StackConfig
    """Transformer blocks of the decoder."""
    target_vocab_size: Size | None = None
    """Vocabulary size of the targets; null: source and target share the token embedding."""
    max_seq_len: Size | None = None
    """Maximum sequence length, in tokens; null: unlimited."""
    position: nn_config.PositionConfig | None = nn_config.SinusoidalPositionConfig()
    """Position encoding; null: none."""
    embedding: nn_config.EmbeddingConfig = nn_config.EmbeddingConfig()
    """Token embedding."""
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    """Language-model head."""
    target_positions: bool = False
    """Whether the targets have position embeddings and an embedding norm of their own, with shared token embeddings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_transformer(self, self.encoder, self.decoder)


class RecurrentConfig(_NetworkConfig):
    """Recurrent language model: LSTM or GRU."""

    kind: ClassVar[str] = "recurrent"
    max_seq_len: ClassVar[int | None] = None
    num_layers: Size = 1
    """Number of recurrent layers."""
    cell: Literal["lstm", "gru"] = "lstm"
    """Recurrent cell."""
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    """Language-model head."""


class ConvolutionConfig(_NetworkConfig):
    """Causal gated convolutions; layer i has dilation `dilation`**i."""

    kind: ClassVar[str] = "convolution"
    max_seq_len: ClassVar[int | None] = None
    num_layers: Size = 4
    """Number of convolution layers."""
    kernel_size: Annotated[int, Ge(2)] = 3
    """Width of a convolution, in tokens."""
    dilation: Size = 2
    """Base of the dilation: layer i has dilation**i."""
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    """Language-model head."""


class NGramConfig(_BaseConfig):
    """N-gram counts up to `order` tokens, interpolated, with absolute discounting by `discount`."""

    kind: ClassVar[str] = "ngram"
    max_seq_len: ClassVar[int | None] = None
    order: Size = 3
    """Length of the longest n-gram, in tokens."""
    discount: Annotated[float, Gt(0), Lt(1)] = 0.75
    """Absolute discount of the counts, between 0 and 1."""


class RecurrentTranslatorConfig(_NetworkConfig):
    """Bidirectional recurrent encoder and a recurrent decoder with additive attention."""

    kind: ClassVar[str] = "recurrent-translator"
    max_seq_len: ClassVar[int | None] = None
    d_attention: Size | None = None
    """Width of the additive attention; null: d_model."""
    target_vocab_size: Size | None = None
    """Vocabulary size of the targets; null: source and target share the token embedding."""
    num_layers: Size = 1
    """Number of recurrent layers."""
    cell: Literal["lstm", "gru"] = "gru"
    """Recurrent cell."""
    use_attention: bool = True
    """Whether the decoder attends to the source; otherwise it gets only the encoder's last state."""
    lm_head: nn_config.LMHeadConfig = nn_config.LMHeadConfig()
    """Language-model head."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 2:
            raise InvalidInput(f"d_model is {self.d_model}.", hint="d_model must be even: half for each direction.")


class Word2VecConfig(_BaseConfig):
    """Word vectors (word2vec): predict the next word from the `window` before it, or neighbours (skip-gram)."""

    kind: ClassVar[str] = "words"
    max_seq_len: ClassVar[int | None] = None
    d_model: Size
    """Width of the model (embedding dimension)."""
    task: Literal["next", "skip-gram"] = "next"
    """Predict the next word, or the neighbours of each word (skip-gram)."""
    window: Size = 1
    """Number of words before the predicted one, or on either side of it."""


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


def can_extend_context(config: ModelConfig) -> bool:
    """True if positions beyond the context can be computed; a table of learned positions has no more rows."""
    return not isinstance(getattr(config, "position", None), nn_config.LearnedPositionConfig)


def read_config(data: object, where: str = "") -> ModelConfig:
    """Read a model config from plain data.

    >>> read_config({"kind": "ngram", "vocab_size": 50}).order
    3
    """
    return reader.read(ModelConfig, data, where)  # type: ignore[arg-type]  # a union is not a type to mypy


def _check_transformer(
    config: DecoderConfig | EncoderConfig | EncoderDecoderConfig, *stacks: nn_config.StackConfig
) -> None:
    head = config.lm_head
    if (config.embedding.width or config.d_model) != config.d_model and head is not None and head.transform is None:
        hint = "Set lm_head.transform, or leave out embedding.width."
        raise InvalidInput("Embeddings of another width need an LM head with a transform.", hint=hint)
    if isinstance(config.position, nn_config.LearnedPositionConfig) and config.max_seq_len is None:
        raise InvalidInput("max_seq_len is missing.", hint="Learned positions need a maximum sequence length.")
    for stack in stacks:
        num_heads = stack.attention.num_heads
        if stack.attention.d_head is None and config.d_model % num_heads:
            message = f"d_model {config.d_model} cannot be split into {num_heads} heads."
            raise InvalidInput(message, hint="Choose num_heads that divides d_model, or set d_head.")
        d_head = stack.attention.d_head or config.d_model // num_heads
        if isinstance(config.position, nn_config.RotaryConfig):
            width = config.position.rotated_width(d_head)
            if width % 2 or not 0 < width <= d_head:
                raise InvalidInput(
                    f"Rotary positions need an even head width, not {width} of {d_head} dimensions.",
                    hint="Choose an even d_head; with position.share, an even number of dimensions is rotated.",
                )
