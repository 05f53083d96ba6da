"""T5, T5 1.1 and mT5: relative position bias, pre-norm RMSNorm, unscaled attention scores."""

from functools import partial

from peasy.checkpoint.huggingface.config_fields import (
    FROM_HF_ACTIVATION,
    TO_HF_ACTIVATION,
    ConfigFields,
    WeightNames,
)
from peasy.checkpoint.huggingface.config_table import Custom, Field, Settings, TokenIdFields
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.weight_map import WeightMap, WeightRule, module_rules
from peasy.models.config import EncoderDecoderConfig
from peasy.nn import config as nn_config

_BOTH = "encoder.{0} decoder.{0}"


def _read_mlp(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    known = {f"{gate}{name}": name for gate in ("", "gated-") for name in FROM_HF_ACTIVATION}
    known["gated-gelu"] = "gelu_new"  # transformers does the same, for compatibility with old files
    activation = fields.choice("feed_forward_proj", known, "relu")
    gated = str(fields.data.get("feed_forward_proj")).startswith("gated-")
    fields.require_value("is_gated_act", gated, reason="This contradicts feed_forward_proj.")
    fields.require_value("dense_act_fn", activation, reason="This contradicts feed_forward_proj.")
    mlp = {"kind": "gated" if gated else "mlp", "activation": FROM_HF_ACTIVATION[activation], "bias": False}
    for side in ("encoder", "decoder"):
        settings |= {f"{side}.feedforward.{name}": value for name, value in mlp.items()}


def _write_mlp(settings: Settings) -> dict[str, object]:
    gated = settings["encoder.feedforward.kind"] == "gated"
    activation = TO_HF_ACTIVATION[settings["encoder.feedforward.activation"]]
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


def _weight_map(config: EncoderDecoderConfig) -> WeightMap:
    """Return the weight map: each block is a list of sublayers, two in the encoder and three in the decoder."""
    gated = isinstance(config.encoder.feedforward, nn_config.GatedMLPConfig)
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


_SETTINGS = {"kind": "encoder-decoder", "position.kind": "relative"} | {
    f"{side}.{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "attention.bias": False, "attention.output_bias": False, "attention.scale": 1.0, "norm.kind": "rms"
    }.items()
}  # fmt: skip
FAMILIES = tuple(
    ModelFamily(
        name,
        (f"{name.upper()}ForConditionalGeneration", *(["T5WithLMHeadModel"] if name == "t5" else [])),
        _SETTINGS,
        (
            *(Field(field, field) for field in ("vocab_size", "d_model")),
            Field("d_kv", _BOTH.format("attention.d_head")),
            Field("d_ff", _BOTH.format("feedforward.d_ff")),
            Field("num_layers", "encoder.num_layers", ConfigFields.num_layers),
            Field(
                "num_decoder_layers", "decoder.num_layers", ConfigFields.num_layers,
                lambda settings: settings["encoder.num_layers"],
            ),
            Field("num_heads", _BOTH.format("attention.num_heads")),
            Field("relative_attention_num_buckets", "position.num_buckets", default=32, null=32),
            Field("relative_attention_max_distance", "position.max_distance", default=128, null=128),
            Field("layer_norm_epsilon", _BOTH.format("norm.eps"), ConfigFields.number, 1e-6),
            Custom(_read_mlp, _write_mlp),
            Custom(partial(_read_head, may_scale=name == "t5"), partial(_write_head, may_scale=name == "t5")),
            Field("dropout_rate", "dropout", ConfigFields.probability, 0.1),
        ),
        _weight_map,
        special_tokens=TokenIdFields("pad_token_id"),
        ignored="n_positions is_decoder",
    )
    for name in ("t5", "mt5")
)  # fmt: skip
