"""GPT-NeoX (Pythia): parallel residual, partial RoPE; query, key and value of each head stored together."""

from peasy.checkpoint.huggingface.config_fields import ConfigFields
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    Field,
    TiedHead,
    activation,
    length,
    sizes,
)
from peasy.checkpoint.huggingface.family import ModelFamily
from peasy.checkpoint.huggingface.rope import Rope
from peasy.checkpoint.huggingface.weight_map import (
    QUERY_KEY_VALUE,
    SplitGroups,
    WeightMap,
    block_names,
    decoder_map,
    fused_rules,
)
from peasy.models.config import DecoderConfig

_MLP = "mlp.dense_h_to_4h mlp.dense_4h_to_h"


def _weight_map(config: DecoderConfig) -> WeightMap:
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
    ("GPTNeoXForCausalLM", "GPTNeoXModel"),
    {"kind": "decoder", "stack.feedforward.kind": "mlp", "stack.norm.kind": "layer"},
    (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"),
        Field("attention_bias", ATTENTION_BIAS, ConfigFields.boolean, True),
        activation("hidden_act", "gelu"),
        Field("layer_norm_eps", "stack.norm.eps", ConfigFields.number, 1e-5),
        Field("use_parallel_residual", "stack.parallel", ConfigFields.boolean, True),
        length(2048, unlimited=2048),
        Rope("rotary_emb_base", partial=True, share="rotary_pct", default_share=0.25),
        TiedHead("gpt_neox.embed_in.weight", "embed_out.weight", default=False),
    ),
    _weight_map,
    prefix="gpt_neox.",
    ignored="is_decoder",
    aliases={"lm_head.weight": "embed_out.weight"},
)
