"""Marian (Opus-MT translation) and Pegasus: one weight map; sinusoidal positions, post-norm or pre-norm."""

from dataclasses import dataclass
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
from peasy.checkpoint.huggingface.rule import Row, Rule, Table, modules
from peasy.models.config import EncoderDecoderConfig
from peasy.nn.part import Attention, Embedding, Head, LayerNorm, Plain, Sinusoidal, Stack

IGNORED = """
    activation_dropout encoder_layerdrop decoder_layerdrop is_decoder is_encoder_decoder num_hidden_layers
    extra_pos_embeddings
"""
PLAIN = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits")


@dataclass(frozen=True)
class Options:
    """Differences between the families: pre- or post-norm, and whether source and target vocabularies may differ."""

    norm: Literal["before", "after"]
    two_vocabularies: bool


def read(fields: Fields, stored: Parts, *, options: Options) -> EncoderDecoderConfig:
    """Convert a config of this family to peasy's.

    With untied embeddings, newer files store encoder and decoder embeddings separately, whatever the config says.
    """
    fields.ignore(IGNORED)
    for name in PLAIN:
        fields.only(name, False, why="Only transformers' default arrangement is supported.")
    fields.only("static_position_embeddings", True, why="Only sinusoidal positions are supported.")
    shared, vocabulary = True, fields.whole("vocab_size")
    target = vocabulary
    if options.two_vocabularies:
        separate = stored.differ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        shared = fields.flag("share_encoder_decoder_embeddings", True) and not separate
        target = fields.whole("decoder_vocab_size", vocabulary)
    embedding = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
    tied = fields.flag("tie_word_embeddings", True) and not stored.differ("lm_head.weight", embedding)
    return EncoderDecoderConfig(
        vocabulary=vocabulary,
        d_model=fields.whole("d_model"),
        encoder=_read_stack(fields, "encoder", options),
        decoder=_read_stack(fields, "decoder", options),
        target_vocabulary=None if shared else target,
        context=fields.whole("max_position_embeddings"),
        position=Sinusoidal("halves"),
        embedding=Embedding(scaled=fields.flag("scale_embedding", False)),
        head=Head(tied, bias="final_logits_bias" in stored),
        dropout=fields.number("dropout", 0.1, most=0.999),
        special=read_special(fields, start="pad_token_id"),
    )


def write(config: EncoderDecoderConfig, *, options: Options) -> dict[str, Any]:
    """Convert peasy's config to one of this family."""
    vocabularies = {
        "decoder_vocab_size": config.target_vocabulary or config.vocabulary,
        "share_encoder_decoder_embeddings": config.target_vocabulary is None,
    }
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocabulary,
        **(vocabularies if options.two_vocabularies else {}),
        "d_model": config.d_model,
        "max_position_embeddings": config.context or 1024,  # size of their table of sinusoids: a number is required
        "activation_function": THEIR_ACTIVATIONS[config.encoder.feedforward.activation],
        "scale_embedding": config.embedding.scaled,
        "tie_word_embeddings": config.head.tied,
        "dropout": config.dropout,
        "forced_eos_token_id": config.special.end[0] if config.special.end else None,
        **_write_stack("encoder", config.encoder),
        **_write_stack("decoder", config.decoder),
        **write_special(config.special),
    }


def _read_stack(fields: Fields, side: str, options: Options) -> Stack:
    activation = fields.choice("activation_function", ACTIVATIONS, "gelu")
    return Stack(
        layers=fields.whole(f"{side}_layers", most=MOST_LAYERS),
        attention=Attention(heads=fields.whole(f"{side}_attention_heads")),
        feedforward=Plain(width=fields.whole(f"{side}_ffn_dim"), activation=activation),
        norm=LayerNorm(options.norm),
    )


def _write_stack(side: str, stack: Stack) -> dict[str, Any]:
    return {
        f"{side}_layers": stack.layers,
        f"{side}_attention_heads": stack.attention.heads,
        f"{side}_ffn_dim": stack.feedforward.width,
    }


def table(config: EncoderDecoderConfig) -> Table:
    """Return the weight map."""
    shared = config.target_vocabulary is None
    source = "model.shared.weight" if shared else "model.encoder.embed_tokens.weight"
    target = "model.shared.weight" if shared else "model.decoder.embed_tokens.weight"
    copies = {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": source}
    return Table(
        rules=(
            Rule(source, "embedding.token.weight"),
            Rule(target, "target_embedding.token.weight"),
            *_block_rules("encoder"),
            *_block_rules("decoder"),
            Rule("final_logits_bias", "head.bias", Row()),
            Rule("lm_head.weight", "head.weight"),
        ),
        copies={**(copies if shared else {}), "lm_head.weight": target},
        computed=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
        unused=() if shared else ("model.shared.weight",),
    )


def _block_rules(side: str) -> tuple[Rule, ...]:
    attentions = {"self_attn": "attention", "encoder_attn": "cross_attention"}
    projections = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    names = {
        f"{theirs}.{proj}": f"{ours}.{name}"
        for theirs, ours in attentions.items()
        for proj, name in projections.items()
    }
    names |= {f"{theirs}_layer_norm": f"{ours}_norm" for theirs, ours in attentions.items()}
    names |= {"fc1": "feedforward.up", "fc2": "feedforward.down", "final_layer_norm": "feedforward_norm"}
    return (
        *modules(f"model.{side}.layers.{{layer}}.", f"{side}.blocks.{{layer}}.", names),
        *modules(f"model.{side}.", f"{side}.", {"layer_norm": "norm"}),
    )


def _family(name: str, architecture: str, options: Options) -> Family:
    return Family(
        name,
        EncoderDecoderConfig,
        (architecture,),
        partial(read, options=options),
        partial(write, options=options),
        table,
        prefix="model.",
    )


FAMILIES = (
    _family("marian", "MarianMTModel", Options(norm="after", two_vocabularies=True)),
    _family("pegasus", "PegasusForConditionalGeneration", Options(norm="before", two_vocabularies=False)),
)
