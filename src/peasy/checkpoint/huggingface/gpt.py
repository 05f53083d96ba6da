"""GPT-2, GPT-Neo (TinyStories), GPT-NeoX (Pythia) and OPT.

GPT-2 has learned positions, a fused QKV projection, and matrices stored transposed. GPT-Neo has unscaled scores and
alternating global and local attention. GPT-NeoX has a parallel residual and partial RoPE, and stores query, key and
value of each head together. OPT has learned positions from 2 on, and ReLU.
"""

from dataclasses import replace
from typing import Any

from peasy.checkpoint.huggingface.classification import OF_LAST_TOKEN, classifier_rules
from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    D_FF,
    SCALE,
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
    TRANSPOSE,
    WeightMap,
    block_names,
    decoder_map,
    fused_rules,
    module_rules,
    split_fused,
    split_groups,
)
from peasy.checkpoint.huggingface.windows import WINDOW, WINDOWED_LAYERS, write_layer_types
from peasy.models.config import DecoderConfig

_DECODER = {"kind": "decoder", "stack.feedforward.kind": "mlp", "stack.norm.kind": "layer"}
_LEARNED = {**_DECODER, "position.kind": "learned"}
_GPT_NAMES = {"embedding": "wte", "position": "wpe", "norm": "ln_f"}
_MLP = "mlp.dense_h_to_4h mlp.dense_4h_to_h"


def _masks(prefix: str) -> tuple[str, ...]:
    return f"{prefix}bias", f"{prefix}masked_bias"


def _gpt2_weights(config: DecoderConfig) -> WeightMap:
    """Return the weight map; matrices are stored transposed."""
    external, internal = "transformer.h.{layer}.", "decoder.blocks.{layer}."
    sizes = (config.d_model,) * 3
    qkv = fused_rules(f"{external}attn.c_attn", internal, QUERY_KEY_VALUE, split_fused(sizes))
    transposed = replace(qkv[0], transform=split_fused(sizes, 1, TRANSPOSE))
    modules = module_rules(external, internal, block_names("- - - attn.c_proj - mlp.c_fc mlp.c_proj -"))
    rules = [replace(rule, transform=TRANSPOSE) if "weight" in rule.external else rule for rule in modules]
    own = transposed, qkv[1], *rules, *classifier_rules(config)
    norms = block_names("- - - - ln_1 - - ln_2")
    return decoder_map("transformer.", "h", norms, *own, **_GPT_NAMES, buffers=_masks("attn."))


_GPT2 = ModelFamily(
    "gpt2",
    architectures("GPT2LMHeadModel", "GPT2"),
    _LEARNED,
    (
        *sizes("vocab_size n_embd n_layer n_head"),
        Field("n_inner", D_FF, default=lambda settings: 4 * settings["d_model"]),
        activation("activation_function", "gelu_new"),
        Field("layer_norm_epsilon", "stack.norm.eps", ConfigFields.number, 1e-5),
        Field(
            "scale_attn_weights", SCALE, ConfigFields.boolean, True,
            decode=lambda scaled: None if scaled else 1.0, encode=lambda scale: scale != 1.0,
        ),
        length(1024, "n_positions"),
        TiedHead("transformer.wte.weight"),
        Field("resid_pdrop embd_pdrop attn_pdrop", "dropout", ConfigFields.probability, 0.1),
        Fixed("scale_attn_by_inverse_layer_idx", (False,), "Attention scales per layer are not supported."),
        Fixed("add_cross_attention", (False,), "peasy's decoder has no cross-attention."),
        OF_LAST_TOKEN,
    ),
    _gpt2_weights,
    prefix="transformer.",
    ignored="n_ctx n_special predict_special_tokens reorder_and_upcast_attn",
)  # fmt: skip


def _read_local_layers(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    """Read attention_types, a list of pairs (kinds of some layers, how often they repeat)."""
    layers, window = settings["stack.num_layers"], fields.integer("window_size", 256)
    groups: Any = fields.data.get("attention_types") or [[["global", "local"], layers // 2]]
    fields.ignore("attention_types attention_layers")
    try:
        kinds = [kind for names, count in groups for _ in range(min(count, layers)) for kind in names]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != layers or any(kind not in ("global", "local") for kind in kinds):
        raise fields.invalid("attention_types", f"pairs of kinds (global, local) and counts, {layers} layers in all")
    if local := tuple(layer for layer, kind in enumerate(kinds) if kind == "local"):
        settings |= {WINDOW: window, WINDOWED_LAYERS: local}


def _write_local_layers(settings: Settings) -> dict[str, object]:
    kinds = write_layer_types(settings, "global", "local")
    return {"attention_types": [[kinds, 1]], "window_size": settings[WINDOW] or 256}


def _gpt_neo_weights(config: DecoderConfig) -> WeightMap:
    attention = " ".join(f"attn.attention.{name}_proj" for name in ("q", "k", "v", "out"))
    names = block_names(f"{attention} ln_1 mlp.c_fc mlp.c_proj ln_2")
    own, buffers = classifier_rules(config), _masks("attn.attention.")
    return decoder_map("transformer.", "h", names, *own, **_GPT_NAMES, buffers=buffers)


_GPT_NEO = ModelFamily(
    "gpt_neo",
    architectures("GPTNeoForCausalLM", "GPTNeo"),
    {**_LEARNED, "stack.attention.bias": False, "stack.attention.scale": 1.0},
    (
        *sizes("vocab_size hidden_size num_layers num_heads"),
        Field("intermediate_size", D_FF, default=lambda settings: 4 * settings["d_model"]),
        activation("activation_function", "gelu_new"),
        Custom(_read_local_layers, _write_local_layers),
        Field("layer_norm_epsilon", "stack.norm.eps", ConfigFields.number, 1e-5),
        length(2048),
        TiedHead("transformer.wte.weight"),
        Field("resid_dropout embed_dropout attention_dropout", "dropout", ConfigFields.probability, 0.0),
        OF_LAST_TOKEN,
    ),
    _gpt_neo_weights,
    prefix="transformer.",
)  # fmt: skip


def _gpt_neox_weights(config: DecoderConfig) -> WeightMap:
    qkv = fused_rules(
        "gpt_neox.layers.{layer}.attention.query_key_value",
        "decoder.blocks.{layer}.",
        QUERY_KEY_VALUE,
        split_groups(config.stack.attention.num_heads),
    )
    names = block_names(f"- - - attention.dense input_layernorm {_MLP} post_attention_layernorm")
    places = {"embedding": "embed_in", "norm": "final_layer_norm", "head": "embed_out"}
    buffers = (*_masks("attention."), "attention.rotary_emb.inv_freq")
    return decoder_map("gpt_neox.", "layers", names, *qkv, *classifier_rules(config), **places, buffers=buffers)


_GPT_NEOX = ModelFamily(
    "gpt_neox",
    architectures("GPTNeoXForCausalLM", "GPTNeoX"),
    _DECODER,
    (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"),
        Field("attention_bias", ATTENTION_BIAS, ConfigFields.boolean, True),
        activation("hidden_act", "gelu"),
        Field("layer_norm_eps", "stack.norm.eps", ConfigFields.number, 1e-5),
        Field("use_parallel_residual", "stack.parallel", ConfigFields.boolean, True),
        length(2048, unlimited=2048),
        Rope("rotary_emb_base", partial=True, share="rotary_pct", default_share=0.25),
        TiedHead("gpt_neox.embed_in.weight", "embed_out.weight", default=False),
        OF_LAST_TOKEN,
    ),
    _gpt_neox_weights,
    prefix="gpt_neox.",
    aliases={"lm_head.weight": "embed_out.weight"},
)


_WIDTH = "word_embed_proj_dim"


def _read_width(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    fields.require_value(_WIDTH, settings["d_model"], reason="Embeddings of another width are not supported.")


def _opt_weights(config: DecoderConfig) -> WeightMap:
    attention = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm"
    names = block_names(f"{attention} fc1 fc2 final_layer_norm")
    places = {"embedding": "embed_tokens", "position": "embed_positions", "norm": "final_layer_norm"}
    return decoder_map("model.decoder.", "layers", names, *classifier_rules(config), **places)


_OPT = ModelFamily(
    "opt",
    architectures("OPTForCausalLM", "OPT")[:3],
    {**_LEARNED, "position.offset": 2},
    (
        *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads ffn_dim"),
        Custom(_read_width, lambda settings: {_WIDTH: settings["d_model"]}),
        activation("activation_function", "relu"),
        Field("enable_bias", f"{ATTENTION_BIAS} stack.feedforward.bias", ConfigFields.boolean, True),
        length(2048),
        TiedHead("model.decoder.embed_tokens.weight"),
        Field("dropout", "dropout", ConfigFields.probability, 0.1),
        Fixed("layer_norm_elementwise_affine", (True,), "Norms without weights are not supported."),
        Fixed("_remove_final_layer_norm", (False,), "The final norm is part of the model."),
        Fixed("do_layer_norm_before", (True,), "Only pre-norm is supported."),
        OF_LAST_TOKEN,
    ),
    _opt_weights,
    prefix="model.",
    ignored="layerdrop output_projection",
)  # fmt: skip


FAMILIES = (_GPT2, _GPT_NEO, _GPT_NEOX, _OPT)
