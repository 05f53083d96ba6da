"""Encoders of the BERT kind: names, config table and weight map; what differs between the families are options."""

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import NamedTuple

from peasy.checkpoint.huggingface.classification import ClassifierFields
from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ACTIVATION,
    ConfigPart,
    Custom,
    Field,
    Fixed,
    Settings,
    TiedHead,
    activation,
    drop,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily, architectures
from peasy.checkpoint.huggingface.weight_map import WeightMap, WeightRule, block_names, module_rules, shared_layers
from peasy.models.config import EncoderConfig
from peasy.nn.config import ActivationName
from peasy.parameters import Record

_IGNORED = """
    directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    qa_dropout seq_classif_dropout sinusoidal_pos_embds adapters classifier_dropout_prob down_scale_factor gap_size
    net_structure_type num_memory_blocks emb_size tie_weights_ generator_size
"""

BERT_LAYER_NAMES = block_names(
    "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm "
    "intermediate.dense output.dense output.LayerNorm"
)
_REFUSED = (
    Fixed("position_embedding_type", ("absolute",), "BERT's relative positions are not supported."),
    Fixed("is_decoder", (False,), "peasy's encoder is bidirectional."),
    Fixed("add_cross_attention", (False,), "peasy's encoder has no cross-attention."),
)


def usual_fields(default_activation: str = "gelu", *, segments: bool = True) -> tuple[ConfigPart, ...]:
    """Return the fields of sizes, activation, norm, dropout and segments."""
    return (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"),
        activation("hidden_act", default_activation),
        Field("layer_norm_eps", "stack.norm.eps", ConfigFields.number, 1e-12),
        Field("hidden_dropout_prob attention_probs_dropout_prob", "dropout", ConfigFields.probability, 0.1),
        *([Field("type_vocab_size", "embedding.segments", ConfigFields.integer, 2)] if segments else ()),
    )


class HeadNames(NamedTuple):
    """Names of the modules of an LM head, and of its own bias."""

    transform: str
    norm: str
    decoder: str
    bias: str


def head_names(prefix: str, transform: str = "dense", norm: str = "LayerNorm") -> HeadNames:
    """Return the names of a head whose modules have one prefix."""
    return HeadNames(prefix + transform, prefix + norm, f"{prefix}decoder", f"{prefix}bias")


class BertNames(Record):
    """Names of the weights of a family, and which parts it has.

    `classifier_names`: those of the classification head of texts; one for single tokens is `classifier`.
    `projection`: the layer after embeddings of another width. `shared_layers`: all layers are stored as one.
    """

    prefix: str
    head: HeadNames
    layers: str = "encoder.layer.{layer}."
    layer_names: Mapping[str, str] = field(default_factory=lambda: BERT_LAYER_NAMES)
    relative_bias: str | None = None
    classifier_names: Mapping[str, str] = field(default_factory=lambda: {"classifier": "output"})
    pooler: str | None = "pooler.dense"
    projection: str | None = None
    shared_layers: bool = False
    unused: tuple[str, ...] = ()


def bert_family(
    name: str,
    architecture: str,
    names: BertNames,
    *,
    fields: tuple[ConfigPart, ...] = usual_fields(),
    settings: Mapping[str, object] | None = None,
    default_pad_id: int | None = None,
    head_activation: ActivationName | None = None,
    classifier: Mapping[str, object] | None = None,
    pretraining: bool = False,
) -> ModelFamily:
    """Return a family. `default_pad_id`: positions start after the padding id, by default this one."""
    usual: Settings = {"kind": "encoder", "position.kind": "learned", "stack.norm.kind": "layer"}
    usual |= {"stack.norm.placement": "post", "stack.norm.eps": 1e-12, "embedding.norm": True}
    usual["stack.feedforward.kind"] = "mlp"
    table = (
        *fields,
        _positions(default_pad_id),
        _embedding_width(names),
        TiedHead(f"{names.prefix}embeddings.word_embeddings.weight", f"{names.head.decoder}.weight"),
        Custom(partial(_read_parts, names=names, activation=head_activation), lambda settings: {}),
        *_REFUSED,
        ClassifierFields(classifier or {"pooling": "pooler"}),
    )
    return ModelFamily(
        name,
        architectures(f"{architecture}ForMaskedLM", architecture)
        + ((f"{architecture}ForPreTraining",) if pretraining else ()),
        {**usual, **(settings or {})},
        table,
        partial(_weight_map, names=names),
        prefix=names.prefix,
        ignored=_IGNORED,
    )


def _positions(default_pad_id: int | None) -> Custom:
    def read(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        pad = settings["special_tokens.pad"]
        offset = 0 if default_pad_id is None else 1 + (default_pad_id if pad is None else pad)
        longest = fields.integer("max_position_embeddings", 512, minimum=offset + 1)
        settings |= {"max_seq_len": longest - offset, "position.offset": offset}

    def write(settings: Settings) -> dict[str, object]:
        offset = settings.get("position.offset", 0)
        longest = {"max_position_embeddings": (settings["max_seq_len"] or 0) + offset}
        return longest if default_pad_id is None else {**longest, "pad_token_id": offset - 1}

    return Custom(read, write)


def _embedding_width(names: BertNames) -> Custom:
    def read(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        d_model = settings["d_model"]
        width = fields.integer("embedding_size", 128 if names.projection else d_model)
        if names.projection is None:
            fields.require_value("embedding_size", d_model, reason="Embeddings of another width are not supported.")
        settings["embedding.width"] = width if width != d_model or names.shared_layers else None

    def write(settings: Settings) -> dict[str, object]:
        return {"embedding_size": settings["embedding.width"] or settings["d_model"]} if names.projection else {}

    return Custom(read, write)


def _read_parts(
    fields: ConfigFields, weights: WeightNames, settings: Settings, *, names: BertNames,
    activation: ActivationName | None,
) -> None:  # fmt: skip
    """See from the weights whether there is a head and a pooler."""
    settings["pooler"] = f"{names.prefix}{names.pooler}.weight" in weights
    if f"{names.head.transform}.weight" in weights:
        settings |= {"lm_head.bias": True, "lm_head.transform": activation or settings[ACTIVATION]}
    else:
        drop(settings, "lm_head")


def _weight_map(config: EncoderConfig, *, names: BertNames) -> WeightMap:
    """Return the weight map. An untied head stores its bias under `decoder` too; the other bias is unused."""
    tied = config.lm_head is None or config.lm_head.tied
    head = names.head
    bias, other_bias = (head.bias, f"{head.decoder}.bias") if tied else (f"{head.decoder}.bias", head.bias)
    embeddings = f"{names.prefix}embeddings."
    tables = {"word": "token", "position": "position", "token_type": "segment"}
    embedding_names = {f"{name}_embeddings": own for name, own in tables.items()} | {"LayerNorm": "norm"}
    parts = {names.pooler: "pooler", "LayerNorm": "encoder.norm", names.projection: "embedding.projection"}
    of_tokens = config.classifier is not None and config.classifier.level == "token"
    return WeightMap(
        rules=(
            *module_rules(embeddings, "embedding.", embedding_names),
            *_layer_rules(config, names),
            *module_rules(names.prefix, "", {name: own for name, own in parts.items() if name}),
            WeightRule(f"{names.prefix}{names.relative_bias}.weight", "encoder.relative.weight"),
            *module_rules("", "lm_head.", {head.transform: "transform", head.norm: "norm"}),
            WeightRule(f"{head.decoder}.weight", "lm_head.weight"),
            WeightRule(bias, "lm_head.bias"),
            *module_rules("", "classifier.", {"classifier": "output"} if of_tokens else names.classifier_names),
        ),
        tied_copies={
            f"{head.decoder}.weight": f"{embeddings}word_embeddings.weight",
            **({other_bias: bias} if tied else {}),
        },
        derived_buffers=(f"{embeddings}position_ids", f"{embeddings}token_type_ids"),
        unused=(*names.unused, *(() if tied else (other_bias,))),
    )


def _layer_rules(config: EncoderConfig, names: BertNames) -> tuple[WeightRule, ...]:
    rules = module_rules(f"{names.prefix}{names.layers}", "encoder.blocks.{layer}.", names.layer_names)
    if not names.shared_layers:
        return rules
    layers = range(config.stack.num_layers)
    return tuple(
        WeightRule(rule.external, tuple(str(rule.internal).format(layer=n) for n in layers), shared_layers(len(layers)))
        for rule in rules
    )
