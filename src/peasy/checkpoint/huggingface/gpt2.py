"""GPT-2: learned positions, pre-norm, fused QKV projection, matrices stored transposed."""

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
from peasy.checkpoint.huggingface.rule import Rule, Split, Table, Transpose, modules
from peasy.models.config import DecoderConfig
from peasy.nn.part import Attention, Head, LayerNorm, Learned, Plain, Stack

IGNORED = """
    attn_pdrop embd_pdrop n_ctx n_special predict_special_tokens reorder_and_upcast_attn summary_type summary_use_proj
    summary_activation summary_proj_to_labels summary_first_dropout
"""


def read(fields: Fields, stored: Parts) -> DecoderConfig:
    """Convert a gpt2 config to peasy's."""
    fields.ignore(IGNORED)
    fields.only("scale_attn_by_inverse_layer_idx", False, why="Attention scales per layer are not supported.")
    fields.only("add_cross_attention", False, why="peasy's decoder has no cross-attention.")
    d_model = fields.whole("n_embd")
    tied = fields.flag("tie_word_embeddings", True)
    attention = Attention(
        heads=fields.whole("n_head"),
        scale=None if fields.flag("scale_attn_weights", True) else 1.0,
    )
    feedforward = Plain(
        width=fields.whole("n_inner", None) or 4 * d_model,
        activation=fields.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    norm = LayerNorm(epsilon=fields.number("layer_norm_epsilon", 1e-5))
    return DecoderConfig(
        vocabulary=fields.whole("vocab_size"),
        d_model=d_model,
        stack=Stack(fields.whole("n_layer", most=MOST_LAYERS), attention, feedforward, norm),
        context=fields.whole("n_positions"),
        position=Learned(),
        head=Head(tied=tied and not stored.differ("lm_head.weight", "transformer.wte.weight")),
        dropout=fields.number("resid_pdrop", 0.1, most=0.999),
        special=read_special(fields),
    )


def write(config: DecoderConfig) -> dict[str, Any]:
    """Convert peasy's config to a gpt2 config."""
    attention, feedforward = config.stack.attention, config.stack.feedforward
    return {
        "vocab_size": config.vocabulary,
        "n_positions": config.context,
        "n_embd": config.d_model,
        "n_layer": config.stack.layers,
        "n_head": attention.heads,
        "n_inner": feedforward.width,
        "activation_function": THEIR_ACTIVATIONS[feedforward.activation],
        "layer_norm_epsilon": config.stack.norm.epsilon,
        "scale_attn_weights": attention.scale is None,
        "tie_word_embeddings": config.head.tied,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        **write_special(config.special),
    }


def table(config: DecoderConfig) -> Table:
    """Return the weight map."""
    theirs, ours = "transformer.h.{layer}.", "decoder.blocks.{layer}."
    fused = tuple(f"{ours}attention.{part}." for part in ("query", "key", "value"))
    sizes = (config.d_model,) * 3
    matrices = {"attn.c_proj": "attention.output", "mlp.c_fc": "feedforward.up", "mlp.c_proj": "feedforward.down"}
    return Table(
        rules=(
            Rule("transformer.wte.weight", "embedding.token.weight"),
            Rule("transformer.wpe.weight", "embedding.position.weight"),
            Rule(f"{theirs}attn.c_attn.weight", tuple(f"{part}weight" for part in fused), Split(sizes, 1, Transpose())),
            Rule(f"{theirs}attn.c_attn.bias", tuple(f"{part}bias" for part in fused), Split(sizes)),
            *(Rule(f"{theirs}{hf}.weight", f"{ours}{name}.weight", Transpose()) for hf, name in matrices.items()),
            *(Rule(f"{theirs}{hf}.bias", f"{ours}{name}.bias") for hf, name in matrices.items()),
            *modules(theirs, ours, {"ln_1": "attention_norm", "ln_2": "feedforward_norm"}),
            *modules("transformer.", "decoder.", {"ln_f": "norm"}),
            Rule("lm_head.weight", "head.weight"),
        ),
        copies={"lm_head.weight": "transformer.wte.weight"},
        computed=(f"{theirs}attn.bias", f"{theirs}attn.masked_bias"),
    )


FAMILY = Family("gpt2", DecoderConfig, ("GPT2LMHeadModel", "GPT2Model"), read, write, table, prefix="transformer.")
