"""Encoders of the BERT kind: reads and writes the config, and maps the weights; differences are options."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from peasy.checkpoint.huggingface.classification import read_classifier, write_labels
from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, WeightNames
from peasy.checkpoint.huggingface.weight_map import SharedLayers, WeightMap, WeightRule, block_names, module_rules
from peasy.models.config import EncoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    attention_probs_dropout_prob directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type qa_dropout seq_classif_dropout sinusoidal_pos_embds summary_type summary_use_proj
    summary_activation summary_last_dropout adapters classifier_dropout_prob down_scale_factor gap_size
    net_structure_type num_memory_blocks
"""

BERT_LAYER_NAMES = block_names(
    "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm "
    "intermediate.dense output.dense output.LayerNorm"
)


_POOLED = nn_config.ClassifierConfig((), pooling="pooler")


@dataclass(frozen=True)
class BertOptions:
    """Differences between the families: names of weights and fields, positions, heads.

    `offset_positions`: positions start after the padding id. `fields`: other names of config fields; None = the family
    has no such field. `classifier`: names of the classification head of texts; one for single tokens is `classifier`.
    `projection`: the layer after embeddings of another width. `shared_layers`: all layers are stored as one.
    """

    prefix: str
    head_transform: str
    head_norm: str
    head_decoder: str
    head_bias: str
    layers: str = "encoder.layer.{layer}."
    layer_names: Mapping[str, str] = field(default_factory=lambda: BERT_LAYER_NAMES)
    fields: Mapping[str, str | None] = field(default_factory=dict)
    offset_positions: bool = False
    relative_bias: str | None = None
    head_activation: nn_config.ActivationName | None = None
    default_pad_id: int = 0
    norm_placement: nn_config.NormPlacement = "post"
    classifier: nn_config.ClassifierConfig = _POOLED
    classifier_names: Mapping[str, str] = field(default_factory=lambda: {"classifier": "output"})
    pooler: str = "pooler.dense"
    projection: str | None = None
    shared_layers: bool = False
    default_activation: str = "gelu"
    unused: tuple[str, ...] = ()

    def name(self, field_name: str) -> str | None:
        """Return this family's name of a config field, or None."""
        return self.fields.get(field_name, field_name)


def read_config(fields: ConfigFields, weights: WeightNames, *, options: BertOptions) -> EncoderConfig:
    """Convert a config of this family to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    fields.require_value("position_embedding_type", "absolute", reason="BERT's relative positions are not supported.")
    fields.require_value("is_decoder", False, reason="peasy's encoder is bidirectional.")
    fields.require_value("add_cross_attention", False, reason="peasy's encoder has no cross-attention.")
    special = fields.special_tokens()
    padding = options.default_pad_id if special.pad is None else special.pad
    offset = padding + 1 if options.offset_positions else 0
    activation = fields.activation(options.name("hidden_act") or "", options.default_activation)
    embedding = f"{options.prefix}embeddings.word_embeddings.weight"
    d_model = fields.integer(options.name("hidden_size") or "")
    width = fields.integer("embedding_size", 128 if options.projection else d_model)
    if options.projection is None:
        fields.require_value("embedding_size", d_model, reason="Embeddings of another width are not supported.")
    for name in ("num_hidden_groups", "inner_group_num") if options.shared_layers else ():
        fields.require_value(name, 1, reason="Several groups of layers are not supported.")
    tied = fields.boolean("tie_word_embeddings", True) and not weights.differ(
        f"{options.head_decoder}.weight", embedding
    )
    has_head = f"{options.head_transform}.weight" in weights
    has_pooler = f"{options.prefix}{options.pooler}.weight" in weights
    segments, eps = options.name("type_vocab_size"), options.name("layer_norm_eps")
    return EncoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        stack=nn_config.StackConfig(
            fields.num_layers(options.name("num_hidden_layers") or ""),
            nn_config.AttentionConfig(num_heads=fields.integer(options.name("num_attention_heads") or "")),
            nn_config.MLPConfig(fields.integer(options.name("intermediate_size") or ""), activation),
            nn_config.LayerNormConfig(options.norm_placement, fields.number(eps, 1e-12) if eps else 1e-12),
        ),
        max_seq_len=fields.integer("max_position_embeddings", 512, minimum=offset + 1) - offset,
        position=nn_config.LearnedPositionConfig(offset, _read_relative(fields) if options.relative_bias else None),
        embedding=nn_config.EmbeddingConfig(
            segments=fields.integer(segments, 2) if segments else 0,
            norm=True,
            width=width if width != d_model or options.shared_layers else None,
        ),
        lm_head=nn_config.LMHeadConfig(tied, bias=True, transform=options.head_activation or activation)
        if has_head
        else None,
        pooler=has_pooler,
        classifier=read_classifier(fields, options.classifier),
        dropout=fields.number(options.name("hidden_dropout_prob") or "", 0.1, maximum=0.999),
        special_tokens=special,
    )


def _read_relative(fields: ConfigFields) -> nn_config.RelativeBiasConfig:
    fields.require_value("relative_attention_num_buckets", 32, reason="transformers always computes 32 buckets.")
    return nn_config.RelativeBiasConfig(32)


def write_config(config: EncoderConfig, *, options: BertOptions) -> dict[str, object]:
    """Convert peasy's config to one of this family."""
    stack = config.stack
    offset, relative = getattr(config.position, "offset", 0), getattr(config.position, "relative", None)
    fields: dict[str, object] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.attention.num_heads,
        "intermediate_size": stack.feedforward.d_ff,
        "hidden_act": TO_HF_ACTIVATION[stack.feedforward.activation],
        "layer_norm_eps": stack.norm.eps,
        "max_position_embeddings": (config.max_seq_len or 0) + offset,
        "type_vocab_size": config.embedding.segments,
        "tie_word_embeddings": config.lm_head is None or config.lm_head.tied,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        **({"pad_token_id": offset - 1} if options.offset_positions else {}),
        **({"embedding_size": config.embedding.width or config.d_model} if options.projection else {}),
        **({"relative_attention_num_buckets": relative.num_buckets} if relative else {}),
        **write_labels(config.classifier),
    }
    return {name: value for key, value in fields.items() if (name := options.name(key)) is not None}


def weight_map(config: EncoderConfig, *, options: BertOptions) -> WeightMap:
    """Return the weight map. An untied head stores its bias under `decoder` too; the other bias is unused."""
    tied = config.lm_head is None or config.lm_head.tied
    biases = options.head_bias, f"{options.head_decoder}.bias"
    bias, other_bias = biases if tied else biases[::-1]
    embeddings = f"{options.prefix}embeddings."
    embedding_names = {
        "word_embeddings": "token",
        "position_embeddings": "position",
        "token_type_embeddings": "segment",
        "LayerNorm": "norm",
    }
    of_tokens = config.classifier is not None and config.classifier.level == "token"
    return WeightMap(
        rules=(
            *module_rules(embeddings, "embedding.", embedding_names),
            *_layer_rules(config, options),
            *module_rules(options.prefix, "", {options.pooler: "pooler", "LayerNorm": "encoder.norm"}),
            *module_rules(
                options.prefix, "", {options.projection: "embedding.projection"} if options.projection else {}
            ),
            WeightRule(f"{options.prefix}{options.relative_bias}.weight", "encoder.relative.weight"),
            *module_rules("", "lm_head.", {options.head_transform: "transform", options.head_norm: "norm"}),
            WeightRule(f"{options.head_decoder}.weight", "lm_head.weight"),
            WeightRule(bias, "lm_head.bias"),
            *module_rules("", "classifier.", {"classifier": "output"} if of_tokens else options.classifier_names),
        ),
        tied_copies={
            f"{options.head_decoder}.weight": f"{embeddings}word_embeddings.weight",
            **({other_bias: bias} if tied else {}),
        },
        derived_buffers=(f"{embeddings}position_ids", f"{embeddings}token_type_ids"),
        unused=(*options.unused, *(() if tied else (other_bias,))),
    )


def _layer_rules(config: EncoderConfig, options: BertOptions) -> tuple[WeightRule, ...]:
    rules = module_rules(f"{options.prefix}{options.layers}", "encoder.blocks.{layer}.", options.layer_names)
    if not options.shared_layers:
        return rules
    layers = range(config.stack.num_layers)
    return tuple(
        WeightRule(rule.external, tuple(str(rule.internal).format(layer=n) for n in layers), SharedLayers(len(layers)))
        for rule in rules
    )
