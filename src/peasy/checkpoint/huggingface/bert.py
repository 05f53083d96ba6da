"""BERT and RoBERTa: one weight map; they differ in position offset and names of the LM head.

XLM-RoBERTa and CamemBERT are RoBERTa under other names; RoBERTa-PreLayerNorm is pre-norm.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from peasy.checkpoint.huggingface.family import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Family,
    Parts,
    read_special,
    write_special,
)
from peasy.checkpoint.huggingface.fields import MOST_LAYERS, Fields
from peasy.checkpoint.huggingface.rule import Rule, Table, modules
from peasy.models.config import EncoderConfig
from peasy.nn.part import Activation, Attention, Embedding, Head, LayerNorm, Learned, Plain, Stack

IGNORED = """
    attention_probs_dropout_prob directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type
"""


@dataclass(frozen=True)
class Options:
    """Differences between the families. `offset`: positions start after the padding id. `head_activation`: fixed."""

    prefix: str
    transform: str
    norm: str
    decoder: str
    bias: str
    offset: bool = False
    head_activation: Activation | None = None
    padding: int = 0
    place: Literal["before", "after"] = "after"


BERT = Options(
    prefix="bert.",
    transform="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    decoder="cls.predictions.decoder",
    bias="cls.predictions.bias",
)
ROBERTA = Options(
    prefix="roberta.",
    transform="lm_head.dense",
    norm="lm_head.layer_norm",
    decoder="lm_head.decoder",
    bias="lm_head.bias",
    offset=True,
    head_activation="gelu",
    padding=1,
)
PRE_NORM = replace(ROBERTA, prefix="roberta_prelayernorm.", place="before")
NORMS = {
    "after": {"attention.output.LayerNorm": "attention_norm", "output.LayerNorm": "feedforward_norm"},
    "before": {"attention.LayerNorm": "attention_norm", "intermediate.LayerNorm": "feedforward_norm"},
}


def read(fields: Fields, stored: Parts, *, options: Options) -> EncoderConfig:
    """Convert a config of this family to peasy's."""
    fields.ignore(IGNORED)
    fields.only("position_embedding_type", "absolute", why="BERT's relative positions are not supported.")
    fields.only("is_decoder", False, why="peasy's encoder is bidirectional.")
    fields.only("add_cross_attention", False, why="peasy's encoder has no cross-attention.")
    special = read_special(fields)
    padding = options.padding if special.padding is None else special.padding
    offset = padding + 1 if options.offset else 0
    activation = fields.choice("hidden_act", ACTIVATIONS, "gelu")
    embedding = f"{options.prefix}embeddings.word_embeddings.weight"
    tied = fields.flag("tie_word_embeddings", True) and not stored.differ(f"{options.decoder}.weight", embedding)
    has_head = f"{options.transform}.weight" in stored
    return EncoderConfig(
        vocabulary=fields.whole("vocab_size"),
        d_model=fields.whole("hidden_size"),
        stack=Stack(
            fields.whole("num_hidden_layers", most=MOST_LAYERS),
            Attention(heads=fields.whole("num_attention_heads")),
            Plain(width=fields.whole("intermediate_size"), activation=activation),
            LayerNorm(options.place, fields.number("layer_norm_eps", 1e-12)),
        ),
        context=fields.whole("max_position_embeddings", least=offset + 1) - offset,
        position=Learned(offset),
        embedding=Embedding(segments=fields.whole("type_vocab_size", 2, least=0), norm=True),
        head=Head(tied, bias=True, transform=options.head_activation or activation) if has_head else None,
        pooler=f"{options.prefix}pooler.dense.weight" in stored,
        dropout=fields.number("hidden_dropout_prob", 0.1, most=0.999),
        special=special,
    )


def write(config: EncoderConfig, *, options: Options) -> dict[str, Any]:
    """Convert peasy's config to one of this family."""
    feedforward = config.stack.feedforward
    offset = getattr(config.position, "offset", 0)
    special = write_special(config.special)
    if options.offset:
        special["pad_token_id"] = offset - 1
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.stack.layers,
        "num_attention_heads": config.stack.attention.heads,
        "intermediate_size": feedforward.width,
        "hidden_act": THEIR_ACTIVATIONS[feedforward.activation],
        "layer_norm_eps": config.stack.norm.epsilon,
        "max_position_embeddings": (config.context or 0) + offset,
        "type_vocab_size": config.embedding.segments,
        "tie_word_embeddings": config.head is None or config.head.tied,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        **special,
    }


def table(config: EncoderConfig, *, options: Options) -> Table:
    """Return the weight map. An untied head stores its bias under `decoder` too; the other bias is unused."""
    tied = config.head is None or config.head.tied
    bias, other_bias = (options.bias, f"{options.decoder}.bias") if tied else (f"{options.decoder}.bias", options.bias)
    embeddings = f"{options.prefix}embeddings."
    return Table(
        rules=(
            *modules(
                embeddings,
                "embedding.",
                {
                    "word_embeddings": "token",
                    "position_embeddings": "position",
                    "token_type_embeddings": "segment",
                    "LayerNorm": "norm",
                },
            ),
            *modules(
                f"{options.prefix}encoder.layer.{{layer}}.",
                "encoder.blocks.{layer}.",
                {
                    "attention.self.query": "attention.query",
                    "attention.self.key": "attention.key",
                    "attention.self.value": "attention.value",
                    "attention.output.dense": "attention.output",
                    "intermediate.dense": "feedforward.up",
                    "output.dense": "feedforward.down",
                    **NORMS[options.place],
                },
            ),
            *modules(options.prefix, "", {"pooler.dense": "pooler", "LayerNorm": "encoder.norm"}),
            *modules("", "head.", {options.transform: "transform", options.norm: "norm"}),
            Rule(f"{options.decoder}.weight", "head.weight"),
            Rule(bias, "head.bias"),
        ),
        copies={
            f"{options.decoder}.weight": f"{embeddings}word_embeddings.weight",
            **({other_bias: bias} if tied else {}),
        },
        computed=(f"{embeddings}position_ids", f"{embeddings}token_type_ids"),
        unused=("cls.seq_relationship.weight", "cls.seq_relationship.bias", *(() if tied else (other_bias,))),
    )


def _family(name: str, options: Options, *, bare: str, masked: str, pretraining: str | None = None) -> Family:
    def architecture(config: EncoderConfig) -> str:
        if config.head is None:
            return bare
        return pretraining if pretraining and config.pooler else masked

    return Family(
        name,
        EncoderConfig,
        (bare, masked, *([pretraining] if pretraining else [])),
        partial(read, options=options),
        partial(write, options=options),
        partial(table, options=options),
        prefix=options.prefix,
        called=architecture,
    )


FAMILIES = (
    _family("bert", BERT, bare="BertModel", masked="BertForMaskedLM", pretraining="BertForPreTraining"),
    _family("roberta", ROBERTA, bare="RobertaModel", masked="RobertaForMaskedLM"),
    _family("xlm-roberta", ROBERTA, bare="XLMRobertaModel", masked="XLMRobertaForMaskedLM"),
    _family("camembert", ROBERTA, bare="CamembertModel", masked="CamembertForMaskedLM"),
    _family("roberta-prelayernorm", PRE_NORM, bare="RobertaPreLayerNormModel", masked="RobertaPreLayerNormForMaskedLM"),
)
