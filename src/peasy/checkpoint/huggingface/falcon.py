"""Falcon: parallel residual with one norm or two, grouped-query attention, query, key and value of a group together."""

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.rope import read_rope, write_rope
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

IGNORED_FIELDS = "hidden_dropout apply_residual_connection_post_layernorm"


def read_config(fields: ConfigFields, weights: WeightNames) -> DecoderConfig:
    """Convert a falcon config to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    fields.require_value("alibi", False, reason="Its ALiBi is scaled with the scores and rounded to bfloat16.")
    d_model, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_kv_heads", None) or num_heads
    grouped, multi_query = fields.boolean("new_decoder_architecture", False), fields.boolean("multi_query", True)
    num_kv_heads = 1 if multi_query and not grouped else num_kv_heads
    bias, parallel = fields.boolean("bias", False), fields.boolean("parallel_attn", True)
    num_norms = fields.integer("num_ln_in_parallel_attn", 2 if grouped else 1, maximum=2)
    if (num_norms == 2 and not grouped) or (grouped and not parallel):
        raise fields.invalid("num_ln_in_parallel_attn", "1, or 2 with new_decoder_architecture and parallel_attn")
    attention = nn_config.AttentionConfig(
        num_heads, num_kv_heads if num_kv_heads != num_heads else None, bias=bias, output_bias=bias
    )
    feedforward = nn_config.MLPConfig(
        fields.integer("ffn_hidden_size", None) or 4 * d_model, fields.activation("activation", "gelu"), bias
    )
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        stack=nn_config.StackConfig(
            fields.num_layers("num_hidden_layers"),
            attention,
            feedforward,
            nn_config.LayerNormConfig(eps=fields.number("layer_norm_epsilon", 1e-5)),
            parallel=parallel,
            shared_norm=parallel and num_norms == 1,
        ),
        max_seq_len=fields.integer("max_position_embeddings", 2048),
        position=read_rope(fields),
        lm_head=nn_config.LMHeadConfig(
            tied=fields.boolean("tie_word_embeddings", True)
            and not weights.differ("lm_head.weight", "transformer.word_embeddings.weight")
        ),
        special_tokens=fields.special_tokens(),
    )


def write_config(config: DecoderConfig) -> dict[str, object]:
    """Convert peasy's config to a falcon config."""
    stack, attention = config.stack, config.stack.attention
    num_kv_heads = attention.num_kv_heads or attention.num_heads
    is_grouped = stack.parallel and (not stack.shared_norm or 1 < num_kv_heads < attention.num_heads)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "ffn_hidden_size": stack.feedforward.d_ff,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_kv_heads": num_kv_heads,
        "new_decoder_architecture": is_grouped,
        "multi_query": num_kv_heads == 1,
        "parallel_attn": stack.parallel,
        "num_ln_in_parallel_attn": 1 if stack.shared_norm or not stack.parallel else 2,
        "bias": attention.bias,
        "activation": TO_HF_ACTIVATION[stack.feedforward.activation],
        "layer_norm_epsilon": stack.norm.eps,
        "max_position_embeddings": config.max_seq_len or 2048,
        "rope_parameters": write_rope(config.position),
        "tie_word_embeddings": config.lm_head.tied,
    }


def weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    stack, attention = config.stack, config.stack.attention
    num_groups = attention.num_kv_heads or attention.num_heads
    qkv = fused_rules(
        "transformer.h.{layer}.self_attention.query_key_value",
        "decoder.blocks.{layer}.",
        QUERY_KEY_VALUE,
        SplitGroups(num_groups, attention.num_heads // num_groups),
    )
    two_norms = stack.parallel and not stack.shared_norm
    first, second = ("ln_attn", "ln_mlp") if two_norms else ("input_layernorm", "post_attention_layernorm")
    names = block_names(f"- - - self_attention.dense {first} mlp.dense_h_to_4h mlp.dense_4h_to_h {second}")
    places = {"embedding": "word_embeddings", "norm": "ln_f"}
    return decoder_map("transformer.", "h", names, *qkv, **places, buffers=["self_attention.rotary_emb.inv_freq"])


FAMILY = ModelFamily(
    "falcon",
    DecoderConfig,
    ("FalconForCausalLM", "FalconModel"),
    read_config,
    write_config,
    weight_map,
    prefix="transformer.",
    has_custom_code=True,
)
