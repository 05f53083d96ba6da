"""GPT-2, GPT-Neo (TinyStories), GPT-NeoX (Pythia), OPT and Falcon.

GPT-2 has learned positions, a fused QKV projection, and matrices stored transposed. GPT-Neo has unscaled scores and
alternating global and local attention. GPT-NeoX has a parallel residual and partial RoPE, and stores query, key and
value of each head together. OPT has learned positions from 2 on, and ReLU. Falcon has a parallel residual with one norm
or two, and stores query, key and value of each group of heads together.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from peasy.checkpoint.huggingface.classification import OF_LAST_TOKEN, classifier_rules
from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    D_FF,
    HEADS,
    KV_HEADS,
    SCALE,
    ConfigPart,
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
    WeightRule,
    block_names,
    decoder_map,
    fused_rules,
    module_rules,
    split_fused,
    split_groups,
)
from peasy.checkpoint.huggingface.windows import WINDOW, WINDOWED_LAYERS, write_layer_types
from peasy.models.config import DecoderConfig

_DECODER: Settings = {"kind": "decoder", "stack.feedforward.kind": "mlp", "stack.norm.kind": "layer"}
_LEARNED: Settings = {**_DECODER, "position.kind": "learned"}
_GPT_NAMES = {"embedding": "wte", "position": "wpe", "norm": "ln_f"}
_MLP = "mlp.dense_h_to_4h mlp.dense_4h_to_h"


def _family(
    names: str, weights: Callable[[DecoderConfig], WeightMap], prefix: str, *parts: ConfigPart,
    settings: Settings = _DECODER, **options: Any,
) -> ModelFamily:  # fmt: skip
    """Return a family; `names` are its own, its class with an LM head, and what its other classes begin with."""
    name, language_model, other = names.split()
    classes = tuple(c for c in architectures(language_model, other) if c != "OPTForTokenClassification")
    return ModelFamily(name, classes, settings, (*parts, OF_LAST_TOKEN), weights, prefix=prefix, **options)


def _qkv_rules(config: DecoderConfig, module: str) -> tuple[WeightRule, ...]:
    """Return the rules of query, key and value, which are stored together, group by group."""
    attention = config.stack.attention
    num_groups = attention.num_kv_heads or attention.num_heads
    transform = split_groups(num_groups, attention.num_heads // num_groups)
    return fused_rules(f"{module}.query_key_value", "decoder.blocks.{layer}.", QUERY_KEY_VALUE, transform)


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
    return decoder_map("transformer.", "h", norms, *own, **_GPT_NAMES, buffers=["attn.bias", "attn.masked_bias"])


_GPT2 = _family(
    "gpt2 GPT2LMHeadModel GPT2", _gpt2_weights, "transformer.",
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
    settings=_LEARNED,
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
    buffers = ["attn.attention.bias", "attn.attention.masked_bias"]
    return decoder_map("transformer.", "h", names, *classifier_rules(config), **_GPT_NAMES, buffers=buffers)


_GPT_NEO = _family(
    "gpt_neo GPTNeoForCausalLM GPTNeo", _gpt_neo_weights, "transformer.",
    *sizes("vocab_size hidden_size num_layers num_heads"),
    Field("intermediate_size", D_FF, default=lambda settings: 4 * settings["d_model"]),
    activation("activation_function", "gelu_new"),
    Custom(_read_local_layers, _write_local_layers),
    Field("layer_norm_epsilon", "stack.norm.eps", ConfigFields.number, 1e-5),
    length(2048),
    TiedHead("transformer.wte.weight"),
    Field("resid_dropout embed_dropout attention_dropout", "dropout", ConfigFields.probability, 0.0),
    settings={**_LEARNED, "stack.attention.bias": False, "stack.attention.scale": 1.0},
)  # fmt: skip


def _gpt_neox_weights(config: DecoderConfig) -> WeightMap:
    qkv = _qkv_rules(config, "gpt_neox.layers.{layer}.attention")
    names = block_names(f"- - - attention.dense input_layernorm {_MLP} post_attention_layernorm")
    places = {"embedding": "embed_in", "norm": "final_layer_norm", "head": "embed_out"}
    buffers = [f"attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")]
    return decoder_map("gpt_neox.", "layers", names, *qkv, *classifier_rules(config), **places, buffers=buffers)


_GPT_NEOX = _family(
    "gpt_neox GPTNeoXForCausalLM GPTNeoX", _gpt_neox_weights, "gpt_neox.",
    *sizes("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"),
    Field("attention_bias", ATTENTION_BIAS, ConfigFields.boolean, True),
    activation("hidden_act", "gelu"),
    Field("layer_norm_eps", "stack.norm.eps", ConfigFields.number, 1e-5),
    Field("use_parallel_residual", "stack.parallel", ConfigFields.boolean, True),
    length(2048, unlimited=2048),
    Rope("rotary_emb_base", partial=True, share="rotary_pct", default_share=0.25),
    TiedHead("gpt_neox.embed_in.weight", "embed_out.weight", default=False),
    aliases={"lm_head.weight": "embed_out.weight"},
)  # fmt: skip


_WIDTH = "word_embed_proj_dim"


def _read_width(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    fields.require_value(_WIDTH, settings["d_model"], reason="Embeddings of another width are not supported.")


def _opt_weights(config: DecoderConfig) -> WeightMap:
    attention = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj self_attn_layer_norm"
    names = block_names(f"{attention} fc1 fc2 final_layer_norm")
    places = {"embedding": "embed_tokens", "position": "embed_positions", "norm": "final_layer_norm"}
    return decoder_map("model.decoder.", "layers", names, *classifier_rules(config), **places)


_OPT = _family(
    "opt OPTForCausalLM OPT", _opt_weights, "model.",
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
    settings={**_LEARNED, "position.offset": 2},
    ignored="layerdrop output_projection",
)  # fmt: skip


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


def _falcon_weights(config: DecoderConfig) -> WeightMap:
    qkv = _qkv_rules(config, "transformer.h.{layer}.self_attention")
    two_norms = config.stack.parallel and not config.stack.shared_norm
    first, second = ("ln_attn", "ln_mlp") if two_norms else ("input_layernorm", "post_attention_layernorm")
    names = block_names(f"- - - self_attention.dense {first} mlp.dense_h_to_4h mlp.dense_4h_to_h {second}")
    places, own = {"embedding": "word_embeddings", "norm": "ln_f"}, (*qkv, *classifier_rules(config))
    return decoder_map("transformer.", "h", names, *own, **places, buffers=["self_attention.rotary_emb.inv_freq"])


_FALCON = _family(
    "falcon FalconForCausalLM Falcon", _falcon_weights, "transformer.",
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
    ignored="apply_residual_connection_post_layernorm",
    has_custom_code=True,
)  # fmt: skip


FAMILIES = (_GPT2, _GPT_NEO, _GPT_NEOX, _OPT, _FALCON)
