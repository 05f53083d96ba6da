"""T5 and T5 1.1: relative position bias, pre-norm RMSNorm, unscaled attention scores."""

from typing import Any

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
from peasy.models.config import EncoderDecoderConfig
from peasy.nn.part import Attention, FeedForward, Gated, Head, Plain, Relative, RootNorm, Stack

IGNORED = "n_positions is_decoder is_encoder_decoder"


def read(fields: Fields, stored: Parts) -> EncoderDecoderConfig:
    """Convert a t5 config to peasy's.

    In files of version 1.1, tie_word_embeddings = false meant two things: an untied head, and hidden states that are
    not scaled before it. Newer files have a separate field for the second; the first is read from the weights.
    """
    fields.ignore(IGNORED)
    layers = fields.whole("num_layers", most=MOST_LAYERS)
    tie_word_embeddings = fields.flag("tie_word_embeddings", True)
    encoder = Stack(
        layers,
        Attention(
            heads=fields.whole("num_heads"), d_head=fields.whole("d_kv"), bias=False, output_bias=False, scale=1.0
        ),
        _read_feedforward(fields),
        RootNorm(epsilon=fields.number("layer_norm_epsilon", 1e-6)),
    )
    decoder_layers = fields.whole("num_decoder_layers", layers, most=MOST_LAYERS)
    relative = Relative(
        buckets=fields.whole("relative_attention_num_buckets", 32),
        distance=fields.whole("relative_attention_max_distance", 128),
    )
    return EncoderDecoderConfig(
        vocabulary=fields.whole("vocab_size"),
        d_model=fields.whole("d_model"),
        encoder=encoder,
        decoder=Stack(decoder_layers, encoder.attention, encoder.feedforward, encoder.norm),
        position=relative,
        head=Head(
            tied=not stored.differ("lm_head.weight", "shared.weight"),
            scaled=fields.flag("scale_decoder_outputs", tie_word_embeddings),
        ),
        dropout=fields.number("dropout_rate", 0.1, most=0.999),
        special=read_special(fields, start="pad_token_id"),
    )


def write(config: EncoderDecoderConfig) -> dict[str, Any]:
    """Convert peasy's config to a t5 config."""
    attention, feedforward = config.encoder.attention, config.encoder.feedforward
    activation = THEIR_ACTIVATIONS[feedforward.activation]
    gated = isinstance(feedforward, Gated)
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary,
        "d_model": config.d_model,
        "d_kv": attention.d_head or config.d_model // attention.heads,
        "d_ff": feedforward.width,
        "num_layers": config.encoder.layers,
        "num_decoder_layers": config.decoder.layers,
        "num_heads": attention.heads,
        "relative_attention_num_buckets": getattr(config.position, "buckets", 32),
        "relative_attention_max_distance": getattr(config.position, "distance", 128),
        "layer_norm_epsilon": config.encoder.norm.epsilon,
        "feed_forward_proj": ("gated-gelu" if activation == "gelu_new" else f"gated-{activation}")
        if gated
        else activation,
        "dense_act_fn": activation,
        "is_gated_act": gated,
        "tie_word_embeddings": config.head.scaled,
        "scale_decoder_outputs": config.head.scaled,
        "dropout_rate": config.dropout,
        **write_special(config.special),
    }


def _said(activation: str, gated: bool) -> str:
    return "gated-gelu" if gated and activation == "gelu_new" else f"gated-{activation}" if gated else activation


def _read_feedforward(fields: Fields) -> FeedForward:
    known = {"gated-gelu": "gelu_new"} | {f"{gate}{name}": name for gate in ("", "gated-") for name in ACTIVATIONS}
    known["gated-gelu"] = "gelu_new"  # transformers does the same, for compatibility with old files
    activation = fields.choice("feed_forward_proj", known, "relu")
    gated = str(fields.data.get("feed_forward_proj")).startswith("gated-")
    fields.only("is_gated_act", gated, why="This contradicts feed_forward_proj.")
    fields.only("dense_act_fn", activation, why="This contradicts feed_forward_proj.")
    width = fields.whole("d_ff")
    return (Gated if gated else Plain)(width, ACTIVATIONS[activation], bias=False)


def table(config: EncoderDecoderConfig) -> Table:
    """Return the weight map: each block is a list of sublayers, two in the encoder and three in the decoder."""
    gated = isinstance(config.encoder.feedforward, Gated)
    embedding = "shared.weight"
    return Table(
        rules=(
            Rule(embedding, "embedding.token.weight"),
            *_block_rules("encoder", ("SelfAttention",), gated),
            *_block_rules("decoder", ("SelfAttention", "EncDecAttention"), gated),
            Rule("lm_head.weight", "head.weight"),
        ),
        copies={f"{name}.weight": embedding for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")},
        unused=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    )


def _block_rules(side: str, attentions: tuple[str, ...], gated: bool) -> tuple[Rule, ...]:
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
    names |= {f"{last}.DenseReluDense.{theirs}": f"feedforward.{ours}" for theirs, ours in mlp.items()}
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        *modules(f"{side}.block.{{layer}}.", f"{side}.blocks.{{layer}}.", names),
        Rule(bias, f"{side}.relative.weight"),
        *modules(f"{side}.", f"{side}.", {"final_layer_norm": "norm"}),
    )


FAMILY = Family("t5", EncoderDecoderConfig, ("T5ForConditionalGeneration", "T5WithLMHeadModel"), read, write, table)
