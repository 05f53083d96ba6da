"""T5, T5 1.1 and mT5, whole or the encoder alone: relative position bias, pre-norm RMSNorm, unscaled scores."""

from collections.abc import Callable
from functools import partial
from typing import Any

from peasy.checkpoint.huggingface.config_fields import FROM_HF_ACTIVATION, TO_HF_ACTIVATION, ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import Custom, Field, Settings, TokenIdFields
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.weight_map import WeightMap, WeightRule, module_rules
from peasy.models.config import EncoderConfig, EncoderDecoderConfig
from peasy.nn import config as nn_config


def _read_mlp(fields: ConfigFields, weights: WeightNames, settings: Settings, *, stacks: tuple[str, ...]) -> None:
    known = {f"{gate}{name}": name for gate in ("", "gated-") for name in FROM_HF_ACTIVATION}
    known["gated-gelu"] = "gelu_new"  # transformers does the same, for compatibility with old files
    activation = fields.choice("feed_forward_proj", known, "relu")
    gated = str(fields.data.get("feed_forward_proj")).startswith("gated-")
    fields.require_value("is_gated_act", gated, reason="This contradicts feed_forward_proj.")
    fields.require_value("dense_act_fn", activation, reason="This contradicts feed_forward_proj.")
    mlp = {"kind": "gated" if gated else "mlp", "activation": FROM_HF_ACTIVATION[activation], "bias": False}
    settings |= {f"{stack}.feedforward.{name}": value for stack in stacks for name, value in mlp.items()}


def _write_mlp(settings: Settings, *, stacks: tuple[str, ...]) -> dict[str, object]:
    gated = settings[f"{stacks[0]}.feedforward.kind"] == "gated"
    activation = TO_HF_ACTIVATION[settings[f"{stacks[0]}.feedforward.activation"]]
    gate = "gated-gelu" if activation == "gelu_new" else f"gated-{activation}"
    return {"feed_forward_proj": gate if gated else activation, "dense_act_fn": activation, "is_gated_act": gated}


def _read_head(fields: ConfigFields, weights: WeightNames, settings: Settings, *, may_scale: bool) -> None:
    """Read whether the head is tied and scaled; hidden states before it are never scaled unless `may_scale`.

    In files of version 1.1, tie_word_embeddings = false meant two things: an untied head, and hidden states that are
    not scaled before it. Newer files have a separate field for the second; the first is read from the weights.
    """
    tie_word_embeddings = fields.boolean("tie_word_embeddings", True)
    settings["lm_head.tied"] = not weights.differ("lm_head.weight", "shared.weight")
    settings["lm_head.scaled"] = may_scale and fields.boolean("scale_decoder_outputs", tie_word_embeddings)


def _write_head(settings: Settings, *, may_scale: bool) -> dict[str, object]:
    scaled = settings["lm_head.scaled"]
    return {"tie_word_embeddings": scaled, **({"scale_decoder_outputs": scaled} if may_scale else {})}


def _weight_map(config: EncoderDecoderConfig | EncoderConfig) -> WeightMap:
    """Return the weight map: each block is a list of sublayers, two in the encoder and three in the decoder."""
    stack = config.stack if isinstance(config, EncoderConfig) else config.encoder
    gated = isinstance(stack.feedforward, nn_config.GatedMLPConfig)
    embedding = "shared.weight"
    return WeightMap(
        rules=(
            WeightRule(embedding, "embedding.token.weight"),
            *_block_rules("encoder", ("SelfAttention",), gated),
            *_block_rules("decoder", ("SelfAttention", "EncDecAttention"), gated),
            WeightRule("lm_head.weight", "lm_head.weight"),
        ),
        tied_copies={
            f"{name}.weight": embedding for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
        },
        unused=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    )


def _block_rules(side: str, attentions: tuple[str, ...], gated: bool) -> tuple[WeightRule, ...]:
    peasy_names = {"SelfAttention": "attention", "EncDecAttention": "cross_attention"}
    names: dict[str, str] = {}
    for i, attention in enumerate(attentions):
        target = peasy_names[attention]
        names |= {
            f"layer.{i}.{attention}.{part[0]}": f"{target}.{part}" for part in ("query", "key", "value", "output")
        }
        names[f"layer.{i}.layer_norm"] = f"{target}_norm"
    last = f"layer.{len(attentions)}"
    names[f"{last}.layer_norm"] = "feedforward_norm"
    mlp = ({"wi_0": "gate", "wi_1": "up"} if gated else {"wi": "up"}) | {"wo": "down"}
    names |= {f"{last}.DenseReluDense.{external}": f"feedforward.{internal}" for external, internal in mlp.items()}
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        *module_rules(f"{side}.block.{{layer}}.", f"{side}.blocks.{{layer}}.", names),
        WeightRule(bias, f"{side}.relative.weight"),
        *module_rules(f"{side}.", f"{side}.", {"final_layer_norm": "norm"}),
    )


def _family(name: str, architectures: tuple[str, ...], kind: str = "encoder-decoder") -> ModelFamily:
    """Return the family of whole models, or of encoders alone, with the same fields."""
    is_whole = kind == "encoder-decoder"
    stacks = ("encoder", "decoder") if is_whole else ("stack",)
    fixed = {"attention.bias": False, "attention.output_bias": False, "attention.scale": 1.0, "norm.kind": "rms"}

    def field(name: str, path: str, reader: Callable[..., object] = ConfigFields.integer, **options: Any) -> Field:
        return Field(name, " ".join(f"{stack}.{path}" for stack in stacks), reader, **options)

    decoder_parts = (
        Field(
            "num_decoder_layers", "decoder.num_layers", ConfigFields.num_layers,
            lambda settings: settings["encoder.num_layers"],
        ),
        Custom(partial(_read_head, may_scale=name == "t5"), partial(_write_head, may_scale=name == "t5")),
    )  # fmt: skip
    return ModelFamily(
        name if is_whole else f"{name}-encoder",
        architectures,
        {"kind": kind, "position.kind": "relative"}
        | {f"{stack}.{setting}": value for stack in stacks for setting, value in fixed.items()},
        (
            *(Field(field, field) for field in ("vocab_size", "d_model")),
            field("d_kv", "attention.d_head"),
            field("d_ff", "feedforward.d_ff"),
            Field("num_layers", f"{stacks[0]}.num_layers", ConfigFields.num_layers),
            field("num_heads", "attention.num_heads"),
            Field("relative_attention_num_buckets", "position.num_buckets", default=32, null=32),
            Field("relative_attention_max_distance", "position.max_distance", default=128, null=128),
            field("layer_norm_epsilon", "norm.eps", ConfigFields.number, default=1e-6),
            Custom(partial(_read_mlp, stacks=stacks), partial(_write_mlp, stacks=stacks)),
            Field("dropout_rate", "dropout", ConfigFields.probability, 0.1),
            *(decoder_parts if is_whole else ()),
        ),
        _weight_map,
        model_type=name,
        special_tokens=TokenIdFields("pad_token_id"),
        ignored="n_positions is_decoder" + ("" if is_whole else f" num_decoder_layers {_OF_HEADS}"),
    )


_OF_HEADS = "tie_word_embeddings scale_decoder_outputs"
FAMILIES = (
    _family("t5", ("T5ForConditionalGeneration", "T5WithLMHeadModel")),
    _family("mt5", ("MT5ForConditionalGeneration",)),
    _family("t5", ("T5EncoderModel",), "encoder"),
    _family("mt5", ("MT5EncoderModel",), "encoder"),
)
