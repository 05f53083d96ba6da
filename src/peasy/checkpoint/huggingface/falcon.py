"""Falcon: parallel residual with one norm or two, grouped-query attention, query, key and value of a group together."""

from peasy.checkpoint.huggingface.classification import OF_LAST_TOKEN, classifier_rules
from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    D_FF,
    HEADS,
    KV_HEADS,
    Custom,
    Field,
    Fixed,
    Settings,
    TiedHead,
    activation,
    length,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily, architectures
from peasy.checkpoint.huggingface.rope import Rope
from peasy.checkpoint.huggingface.weight_map import (
    QUERY_KEY_VALUE,
    WeightMap,
    block_names,
    decoder_map,
    fused_rules,
    split_groups,
)
from peasy.models.config import DecoderConfig


def _read_groups(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    """Read KV heads and norms, which depend on the version of the architecture."""
    num_heads = settings[HEADS]
    num_kv_heads = fields.integer("num_kv_heads", None) or num_heads
    grouped, multi_query = fields.boolean("new_decoder_architecture", False), fields.boolean("multi_query", True)
    num_kv_heads = 1 if multi_query and not grouped else num_kv_heads
    parallel = fields.boolean("parallel_attn", True)
    num_norms = fields.integer("num_ln_in_parallel_attn", 2 if grouped else 1, maximum=2)
    if (num_norms == 2 and not grouped) or (grouped and not parallel):
        raise fields.invalid("num_ln_in_parallel_attn", "1, or 2 with new_decoder_architecture and parallel_attn")
    settings[KV_HEADS] = num_kv_heads if num_kv_heads != num_heads else None
    settings |= {"stack.parallel": parallel, "stack.shared_norm": parallel and num_norms == 1}


def _write_groups(settings: Settings) -> dict[str, object]:
    parallel, shared_norm = settings["stack.parallel"], settings["stack.shared_norm"]
    return {
        "num_kv_heads": settings[KV_HEADS],
        "new_decoder_architecture": parallel and (not shared_norm or 1 < settings[KV_HEADS] < settings[HEADS]),
        "multi_query": settings[KV_HEADS] == 1,
        "parallel_attn": parallel,
        "num_ln_in_parallel_attn": 1 if shared_norm or not parallel else 2,
    }


def _weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map."""
    stack, attention = config.stack, config.stack.attention
    num_groups = attention.num_kv_heads or attention.num_heads
    qkv = fused_rules(
        "transformer.h.{layer}.self_attention.query_key_value",
        "decoder.blocks.{layer}.",
        QUERY_KEY_VALUE,
        split_groups(num_groups, attention.num_heads // num_groups),
    )
    two_norms = stack.parallel and not stack.shared_norm
    first, second = ("ln_attn", "ln_mlp") if two_norms else ("input_layernorm", "post_attention_layernorm")
    names = block_names(f"- - - self_attention.dense {first} mlp.dense_h_to_4h mlp.dense_4h_to_h {second}")
    places, own = {"embedding": "word_embeddings", "norm": "ln_f"}, (*qkv, *classifier_rules(config))
    return decoder_map("transformer.", "h", names, *own, **places, buffers=["self_attention.rotary_emb.inv_freq"])


FAMILY = ModelFamily(
    "falcon",
    architectures("FalconForCausalLM", "Falcon"),
    {"kind": "decoder", "stack.feedforward.kind": "mlp", "stack.norm.kind": "layer"},
    (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads"),
        Field("ffn_hidden_size", D_FF, default=lambda settings: 4 * settings["d_model"]),
        Custom(_read_groups, _write_groups),
        Field("bias", f"{ATTENTION_BIAS} stack.feedforward.bias", ConfigFields.boolean, False),
        activation("activation", "gelu"),
        Field("layer_norm_epsilon", "stack.norm.eps", ConfigFields.number, 1e-5),
        length(2048, unlimited=2048),
        Rope(),
        TiedHead("transformer.word_embeddings.weight"),
        Fixed("alibi", (False,), "Its ALiBi is scaled with the scores and rounded to bfloat16."),
        OF_LAST_TOKEN,
    ),
    _weight_map,
    prefix="transformer.",
    ignored="apply_residual_connection_post_layernorm",
    has_custom_code=True,
)
