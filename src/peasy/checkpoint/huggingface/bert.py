"""BERT family of Hugging Face (BERT, RoBERTa, CamemBERT, ...): reads and writes the config, and maps the weights.

XLM-RoBERTa and CamemBERT are RoBERTa under other names; RoBERTa-PreLayerNorm is pre-norm.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.weight_map import WeightMap, WeightRule, module_rules
from peasy.models.config import EncoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    attention_probs_dropout_prob directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type
"""


@dataclass(frozen=True)
class _BertOptions:
    """Differences between the families. `offset_positions`: positions start after the padding id."""

    prefix: str
    head_transform: str
    head_norm: str
    head_decoder: str
    head_bias: str
    offset_positions: bool = False
    head_activation: nn_config.ActivationName | None = None
    default_pad_id: int = 0
    norm_position: Literal["pre", "post"] = "post"


BERT = _BertOptions(
    prefix="bert.",
    head_transform="cls.predictions.transform.dense",
    head_norm="cls.predictions.transform.LayerNorm",
    head_decoder="cls.predictions.decoder",
    head_bias="cls.predictions.bias",
)
ROBERTA = _BertOptions(
    prefix="roberta.",
    head_transform="lm_head.dense",
    head_norm="lm_head.layer_norm",
    head_decoder="lm_head.decoder",
    head_bias="lm_head.bias",
    offset_positions=True,
    head_activation="gelu",
    default_pad_id=1,
)
_PRE_NORM = replace(ROBERTA, prefix="roberta_prelayernorm.", norm_position="pre")
_NORM_NAMES = {
    "post": {"attention.output.LayerNorm": "attention_norm", "output.LayerNorm": "feedforward_norm"},
    "pre": {"attention.LayerNorm": "attention_norm", "intermediate.LayerNorm": "feedforward_norm"},
}


def read_config(fields: ConfigFields, weights: WeightNames, *, options: _BertOptions) -> EncoderConfig:
    """Convert a config of this family to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    fields.require_value("position_embedding_type", "absolute", reason="BERT's relative positions are not supported.")
    fields.require_value("is_decoder", False, reason="peasy's encoder is bidirectional.")
    fields.require_value("add_cross_attention", False, reason="peasy's encoder has no cross-attention.")
    special = fields.special_tokens()
    padding = options.default_pad_id if special.pad is None else special.pad
    offset = padding + 1 if options.offset_positions else 0
    activation = fields.activation("hidden_act", "gelu")
    embedding = f"{options.prefix}embeddings.word_embeddings.weight"
    tied = fields.boolean("tie_word_embeddings", True) and not weights.differ(
        f"{options.head_decoder}.weight", embedding
    )
    has_head = f"{options.head_transform}.weight" in weights
    return EncoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=fields.integer("hidden_size"),
        stack=nn_config.StackConfig(
            fields.num_layers("num_hidden_layers"),
            nn_config.AttentionConfig(num_heads=fields.integer("num_attention_heads")),
            nn_config.MLPConfig(d_ff=fields.integer("intermediate_size"), activation=activation),
            nn_config.LayerNormConfig(options.norm_position, fields.number("layer_norm_eps", 1e-12)),
        ),
        max_seq_len=fields.integer("max_position_embeddings", minimum=offset + 1) - offset,
        position=nn_config.LearnedPositionConfig(offset),
        embedding=nn_config.EmbeddingConfig(segments=fields.integer("type_vocab_size", 2, minimum=0), norm=True),
        lm_head=nn_config.LMHeadConfig(tied, bias=True, transform=options.head_activation or activation)
        if has_head
        else None,
        pooler=f"{options.prefix}pooler.dense.weight" in weights,
        dropout=fields.number("hidden_dropout_prob", 0.1, maximum=0.999),
        special_tokens=special,
    )


def write_config(config: EncoderConfig, *, options: _BertOptions) -> dict[str, object]:
    """Convert peasy's config to one of this family."""
    feedforward = config.stack.feedforward
    offset = getattr(config.position, "offset", 0)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.stack.num_layers,
        "num_attention_heads": config.stack.attention.num_heads,
        "intermediate_size": feedforward.d_ff,
        "hidden_act": TO_HF_ACTIVATION[feedforward.activation],
        "layer_norm_eps": config.stack.norm.eps,
        "max_position_embeddings": (config.max_seq_len or 0) + offset,
        "type_vocab_size": config.embedding.segments,
        "tie_word_embeddings": config.lm_head is None or config.lm_head.tied,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        **({"pad_token_id": offset - 1} if options.offset_positions else {}),
    }


def weight_map(config: EncoderConfig, *, options: _BertOptions) -> WeightMap:
    """Return the weight map. An untied head stores its bias under `decoder` too; the other bias is unused."""
    tied = config.lm_head is None or config.lm_head.tied
    biases = options.head_bias, f"{options.head_decoder}.bias"
    bias, other_bias = biases if tied else biases[::-1]
    embeddings = f"{options.prefix}embeddings."
    return WeightMap(
        rules=(
            *module_rules(
                embeddings,
                "embedding.",
                {
                    "word_embeddings": "token",
                    "position_embeddings": "position",
                    "token_type_embeddings": "segment",
                    "LayerNorm": "norm",
                },
            ),
            *module_rules(
                f"{options.prefix}encoder.layer.{{layer}}.",
                "encoder.blocks.{layer}.",
                {
                    "attention.self.query": "attention.query",
                    "attention.self.key": "attention.key",
                    "attention.self.value": "attention.value",
                    "attention.output.dense": "attention.output",
                    "intermediate.dense": "feedforward.up",
                    "output.dense": "feedforward.down",
                    **_NORM_NAMES[options.norm_position],
                },
            ),
            *module_rules(options.prefix, "", {"pooler.dense": "pooler", "LayerNorm": "encoder.norm"}),
            *module_rules("", "lm_head.", {options.head_transform: "transform", options.head_norm: "norm"}),
            WeightRule(f"{options.head_decoder}.weight", "lm_head.weight"),
            WeightRule(bias, "lm_head.bias"),
        ),
        tied_copies={
            f"{options.head_decoder}.weight": f"{embeddings}word_embeddings.weight",
            **({other_bias: bias} if tied else {}),
        },
        derived_buffers=(f"{embeddings}position_ids", f"{embeddings}token_type_ids"),
        unused=("cls.seq_relationship.weight", "cls.seq_relationship.bias", *(() if tied else (other_bias,))),
    )


def _make_family(name: str, options: _BertOptions, prefix: str, has_pretraining: bool = False) -> ModelFamily:
    def architecture(config: EncoderConfig) -> str:
        if config.lm_head is None:
            return f"{prefix}Model"
        return f"{prefix}{'ForPreTraining' if has_pretraining and config.pooler else 'ForMaskedLM'}"

    return ModelFamily(
        name,
        EncoderConfig,
        (f"{prefix}Model", f"{prefix}ForMaskedLM", *([f"{prefix}ForPreTraining"] if has_pretraining else [])),
        partial(read_config, options=options),
        partial(write_config, options=options),
        partial(weight_map, options=options),
        prefix=options.prefix,
        architecture_of=architecture,
    )


FAMILIES = (
    _make_family("bert", BERT, "Bert", has_pretraining=True),
    _make_family("roberta", ROBERTA, "Roberta"),
    _make_family("xlm-roberta", ROBERTA, "XLMRoberta"),
    _make_family("camembert", ROBERTA, "Camembert"),
    _make_family("roberta-prelayernorm", _PRE_NORM, "RobertaPreLayerNorm"),
)
