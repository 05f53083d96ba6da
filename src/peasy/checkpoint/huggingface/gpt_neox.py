"""GPT-NeoX (Pythia): parallel residual, partial RoPE; query, key and value of each head stored together."""

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.rope import RopeNames, read_rope, write_rope
from peasy.checkpoint.huggingface.weight_map import (
    QUERY_KEY_VALUE,
    SplitGroups,
    WeightMap,
    block_names,
    decoder_map,
    fused_rules,
)
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = "is_decoder hidden_dropout"
_MLP = "mlp.dense_h_to_4h mlp.dense_4h_to_h"
_ROPE = RopeNames(base="rotary_emb_base", partial=True, share="rotary_pct", default_share=0.25)


def read_config(fields: ConfigFields, weights: WeightNames) -> DecoderConfig:
    """Convert a gpt_neox config to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    bias = fields.boolean("attention_bias", True)
    tied = fields.boolean("tie_word_embeddings", False)
    feedforward = nn_config.MLPConfig(fields.integer("intermediate_size"), fields.activation("hidden_act", "gelu"))
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=fields.integer("hidden_size"),
        stack=nn_config.StackConfig(
            fields.num_layers("num_hidden_layers"),
            nn_config.AttentionConfig(fields.integer("num_attention_heads"), bias=bias, output_bias=bias),
            feedforward,
            nn_config.LayerNormConfig(eps=fields.number("layer_norm_eps", 1e-5)),
            parallel=fields.boolean("use_parallel_residual", True),
        ),
        max_seq_len=fields.integer("max_position_embeddings", 2048),
        position=read_rope(fields, _ROPE),
        lm_head=nn_config.LMHeadConfig(
            tied=tied and not weights.differ("embed_out.weight", "gpt_neox.embed_in.weight")
        ),
        special_tokens=fields.special_tokens(),
    )


def write_config(config: DecoderConfig) -> dict[str, object]:
    """Convert peasy's config to a gpt_neox config."""
    stack = config.stack
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": stack.feedforward.d_ff,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": stack.attention.num_heads,
        "attention_bias": stack.attention.bias,
        "hidden_act": TO_HF_ACTIVATION[stack.feedforward.activation],
        "layer_norm_eps": stack.norm.eps,
        "use_parallel_residual": stack.parallel,
        "max_position_embeddings": config.max_seq_len or 2048,
        "rope_parameters": write_rope(config.position, _ROPE),
        "tie_word_embeddings": config.lm_head.tied,
    }


def weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    qkv = fused_rules(
        "gpt_neox.layers.{layer}.attention.query_key_value",
        "decoder.blocks.{layer}.",
        QUERY_KEY_VALUE,
        SplitGroups(config.stack.attention.num_heads),
    )
    names = block_names(f"- - - attention.dense input_layernorm {_MLP} post_attention_layernorm")
    places = {"embedding": "embed_in", "norm": "final_layer_norm", "head": "embed_out"}
    buffers = ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")
    return decoder_map("gpt_neox.", "layers", names, *qkv, **places, buffers=buffers)


FAMILY = ModelFamily(
    "gpt_neox",
    DecoderConfig,
    ("GPTNeoXForCausalLM", "GPTNeoXModel"),
    read_config,
    write_config,
    weight_map,
    prefix="gpt_neox.",
    aliases={"lm_head.weight": "embed_out.weight"},
)
