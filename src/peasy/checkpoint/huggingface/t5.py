"""T5, T5 1.1 and mT5: relative position bias, pre-norm RMSNorm, unscaled attention scores."""

from functools import partial

from peasy.checkpoint.huggingface.family import (
    FROM_HF_ACTIVATION,
    TO_HF_ACTIVATION,
    ConfigFields,
    ModelFamily,
    WeightNames,
)
from peasy.checkpoint.huggingface.weight_map import WeightMap, WeightRule, module_rules
from peasy.models.config import EncoderDecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = "n_positions is_decoder is_encoder_decoder output_past num_beams"


def read_config(fields: ConfigFields, weights: WeightNames, *, may_scale: bool) -> EncoderDecoderConfig:
    """Convert a t5 config to peasy's; hidden states before the head are never scaled unless `may_scale`.

    In files of version 1.1, tie_word_embeddings = false meant two things: an untied head, and hidden states that are
    not scaled before it. Newer files have a separate field for the second; the first is read from the weights.
    """
    fields.ignore(IGNORED_FIELDS)
    layers = fields.num_layers("num_layers")
    tie_word_embeddings = fields.boolean("tie_word_embeddings", True)
    encoder = nn_config.StackConfig(
        layers,
        nn_config.AttentionConfig(
            num_heads=fields.integer("num_heads"),
            d_head=fields.integer("d_kv"),
            bias=False,
            output_bias=False,
            scale=1.0,
        ),
        _read_mlp(fields),
        nn_config.RMSNormConfig(eps=fields.number("layer_norm_epsilon", 1e-6)),
    )
    decoder_layers = fields.num_layers("num_decoder_layers", layers)
    relative = nn_config.RelativeBiasConfig(
        num_buckets=fields.integer("relative_attention_num_buckets", 32),
        max_distance=fields.integer("relative_attention_max_distance", 128),
    )
    return EncoderDecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=fields.integer("d_model"),
        encoder=encoder,
        decoder=nn_config.StackConfig(decoder_layers, encoder.attention, encoder.feedforward, encoder.norm),
        position=relative,
        lm_head=nn_config.LMHeadConfig(
            tied=not weights.differ("lm_head.weight", "shared.weight"),
            scaled=may_scale and fields.boolean("scale_decoder_outputs", tie_word_embeddings),
        ),
        dropout=fields.number("dropout_rate", 0.1, maximum=0.999),
        special_tokens=fields.special_tokens(decoder_start_field="pad_token_id"),
    )


def write_config(config: EncoderDecoderConfig, *, may_scale: bool) -> dict[str, object]:
    """Convert peasy's config to a t5 config."""
    attention, feedforward = config.encoder.attention, config.encoder.feedforward
    activation = TO_HF_ACTIVATION[feedforward.activation]
    gated = isinstance(feedforward, nn_config.GatedMLPConfig)
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": attention.d_head or config.d_model // attention.num_heads,
        "d_ff": feedforward.d_ff,
        "num_layers": config.encoder.num_layers,
        "num_decoder_layers": config.decoder.num_layers,
        "num_heads": attention.num_heads,
        "relative_attention_num_buckets": getattr(config.position, "num_buckets", 32),
        "relative_attention_max_distance": getattr(config.position, "max_distance", 128),
        "layer_norm_epsilon": config.encoder.norm.eps,
        "feed_forward_proj": ("gated-gelu" if activation == "gelu_new" else f"gated-{activation}")
        if gated
        else activation,
        "dense_act_fn": activation,
        "is_gated_act": gated,
        "tie_word_embeddings": config.lm_head.scaled,
        **({"scale_decoder_outputs": config.lm_head.scaled} if may_scale else {}),
        "dropout_rate": config.dropout,
    }


def _read_mlp(fields: ConfigFields) -> nn_config.FeedForwardConfig:
    known = {"gated-gelu": "gelu_new"} | {
        f"{gate}{name}": name for gate in ("", "gated-") for name in FROM_HF_ACTIVATION
    }
    known["gated-gelu"] = "gelu_new"  # transformers does the same, for compatibility with old files
    activation = fields.choice("feed_forward_proj", known, "relu")
    gated = str(fields.data.get("feed_forward_proj")).startswith("gated-")
    fields.require_value("is_gated_act", gated, reason="This contradicts feed_forward_proj.")
    fields.require_value("dense_act_fn", activation, reason="This contradicts feed_forward_proj.")
    d_ff = fields.integer("d_ff")
    return (nn_config.GatedMLPConfig if gated else nn_config.MLPConfig)(
        d_ff, FROM_HF_ACTIVATION[activation], bias=False
    )


def weight_map(config: EncoderDecoderConfig) -> WeightMap:
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


FAMILIES = tuple(
    ModelFamily(
        name,
        EncoderDecoderConfig,
        (f"{name.upper()}ForConditionalGeneration", *(["T5WithLMHeadModel"] if name == "t5" else [])),
        partial(read_config, may_scale=name == "t5"),
        partial(write_config, may_scale=name == "t5"),
        weight_map,
    )
    for name in ("t5", "mt5")
)
