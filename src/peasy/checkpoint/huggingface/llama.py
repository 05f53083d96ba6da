"""Decoders of the Llama kind (Llama, Mistral, Qwen, Gemma, OLMo 2, Phi, ...): one table, and what each adds to it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from peasy.checkpoint.huggingface.classification import OF_LAST_TOKEN
from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import (
    ATTENTION_BIAS,
    D_HEAD,
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
from peasy.checkpoint.huggingface.rope import ROPE_LAYERS, Rope
from peasy.checkpoint.huggingface.weight_map import NORMS, WeightMap, WeightRule, block_names, module_rules, split_fused
from peasy.checkpoint.huggingface.windows import Windows
from peasy.models.config import DecoderConfig

_IGNORED = """
    max_sequence_length is_llama_config cache_implementation hidden_activation hidden_act
    original_max_position_embeddings sliding_window_size residual_dropout full_attn_mod interpolate_factor activation
    layer_norm_epsilon
"""
_NEVER = 2**31
_UNLIMITED_CONTEXT = 2**17
"""max_position_embeddings of a model without a limit: the field must have a number."""

_NORM_NAMES = {
    "pre": "input_layernorm - post_attention_layernorm -",
    "output": "post_attention_layernorm - post_feedforward_layernorm -",
    "around": "input_layernorm post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm",
}

_TANH = "gelu_pytorch_tanh"
_SILU, _RELU2 = (activation("hidden_act", name, tanh=_TANH) for name in ("silu", "relu2"))
_GELU = activation("hidden_activation", _TANH, tanh=_TANH)
_OLD_GELU, _CODE_GELU = (activation("hidden_act", _TANH, gelu=gelu, tanh=_TANH) for gelu in ("gelu-tanh", "gelu"))
_BIAS = Field("attention_bias", ATTENTION_BIAS, ConfigFields.boolean, False)
_MLP_BIAS = Field("mlp_bias", "stack.feedforward.bias", ConfigFields.boolean, False)
_LOGIT_CAP = Field("final_logit_softcapping", "lm_head.softcap", ConfigFields.number, None)
_USUAL_CAP = replace(_LOGIT_CAP, default=30.0, nullable=True)
_SCORE_CAP = Field("attn_logit_softcapping", "stack.attention.softcap", ConfigFields.number, 50.0, nullable=True)
_QUERY_SCALE = Field(
    "query_pre_attn_scalar",
    SCALE,
    partial(ConfigFields.number, minimum=1e-6),
    256.0,
    decode=lambda scalar: scalar**-0.5,
    encode=lambda scale: round(scale**-2),
)
_SCALES = (
    Field("embedding_multiplier", "embedding.multiplier", ConfigFields.number, 1.0),
    Field("residual_multiplier", "stack.residual_scale", ConfigFields.number, 1.0),
    Field("logits_scaling", "lm_head.divisor", ConfigFields.number, 1.0),
    Field("attention_multiplier", SCALE, ConfigFields.number, 1.0),
)
_BIAS_REASON = "Biases of this family are not supported."
_NO_BIAS, _QKV_BIAS = (Fixed("attention_bias", (bias,), _BIAS_REASON) for bias in (False, True))
_ONLY_USUAL = (
    Fixed("rope_interleaved", (False,), "peasy's RoPE rotates the two halves of a head, not adjacent pairs."),
    Fixed("use_mrope", (False,), "peasy has no RoPE of images and videos."),
    Fixed("use_bidirectional_attention", (False,), "peasy's decoder is causal."),
)


_PHI3_ROPE = Rope(partial=True, original_length=4096)
_ROPE, _NO_WINDOWS, _SWITCH = Rope(), Windows(), Windows("switch", default_window=4096)


def _heads(kv_heads: int | None, d_head: int | None) -> Custom:
    """Return the part of KV heads and width of a head, with the defaults of the family."""

    def read(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        d_model, num_heads = settings["d_model"], settings[HEADS]
        number = fields.integer("num_key_value_heads", kv_heads or num_heads)
        width = fields.integer("head_dim", d_head or max(d_model // num_heads, 1))
        settings[KV_HEADS] = number if number != num_heads else None
        settings[D_HEAD] = width if width * num_heads != d_model else None

    return Custom(read, lambda settings: {"num_key_value_heads": settings[KV_HEADS], "head_dim": settings[D_HEAD]})


def _family(
    name: str,
    prefix: str,
    *parts: ConfigPart,
    settings: Mapping[str, object] | None = None,
    kv_heads: int | None = None,
    d_head: int | None = None,
    tied: bool = False,
    eps: float = 1e-6,
    eps_name: str = "rms_norm_eps",
    act: Field = _SILU,
    rope: Rope = _ROPE,
    windows: Windows = _NO_WINDOWS,
    fused: bool = False,
    renamed: Mapping[str, str] | None = None,
    text: str | None = None,
) -> ModelFamily:
    """Return a family. `renamed`: its modules that have other names than Llama's."""
    usual: Settings = {"kind": "decoder", "stack.norm.kind": "rms", "stack.feedforward.kind": "gated"}
    usual |= {"stack.attention.bias": False, "stack.attention.output_bias": False, "stack.feedforward.bias": False}
    if not any(part is _SCORE_CAP for part in parts):
        parts = (*parts, Fixed("attn_logit_softcapping", (), "transformers does not compute it in this family."))
    return ModelFamily(
        name,
        architectures(f"{prefix}ForCausalLM", text or prefix),
        {**usual, **(settings or {})},
        (
            *(*sizes("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"), act),
            *(_heads(kv_heads, d_head), length(unlimited=_UNLIMITED_CONTEXT), rope, windows),
            Field(eps_name, "stack.norm.eps", ConfigFields.number, eps),
            TiedHead("model.embed_tokens.weight", default=tied),
            *(*_ONLY_USUAL, *parts, OF_LAST_TOKEN),
        ),
        partial(_weight_map, fused=fused, renamed=renamed or {}),
        prefix="model.",
        ignored=_IGNORED,
        has_custom_code=name == "phi3",
    )


def _weight_map(config: DecoderConfig, *, fused: bool, renamed: Mapping[str, str]) -> WeightMap:
    """Return the weight map; rules for weights that a family does not have are never used."""
    external, internal = "model.layers.{layer}.", "decoder.blocks.{layer}."
    heads = " ".join(f"self_attn.{name}_proj" for name in "qkvo")
    names = block_names(f"{heads} - mlp.up_proj mlp.down_proj -")
    names |= block_names(_NORM_NAMES.get(config.stack.norm.placement, "- - - -"), NORMS)
    names |= {"self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm"}
    names |= {"mlp.gate_proj": "feedforward.gate"}
    return WeightMap(
        rules=(
            WeightRule("model.embed_tokens.weight", "embedding.token.weight"),
            *(_fused_rules(config, external, internal) if fused else ()),
            *module_rules(external, internal, {renamed.get(name, name): own for name, own in names.items()}),
            *module_rules("model.", "decoder.", {renamed.get("norm", "norm"): "norm"}),
            *module_rules("", "", {"lm_head": "lm_head", "score": "classifier.output"}),
        ),
        tied_copies={"lm_head.weight": "model.embed_tokens.weight"},
        derived_buffers=(f"{external}self_attn.rotary_emb.inv_freq",),
    )


def _fused_rules(config: DecoderConfig, external: str, internal: str) -> tuple[WeightRule, ...]:
    attention = config.stack.attention
    d_head = attention.d_head or config.d_model // attention.num_heads
    heads = attention.num_heads, *(attention.num_kv_heads or attention.num_heads,) * 2
    qkv = tuple(f"{internal}attention.{part}.weight" for part in ("query", "key", "value"))
    gate_up = tuple(f"{internal}feedforward.{part}.weight" for part in ("gate", "up"))
    sizes = tuple(count * d_head for count in heads)
    return (
        WeightRule(f"{external}self_attn.qkv_proj.weight", qkv, split_fused(sizes)),
        WeightRule(f"{external}mlp.gate_up_proj.weight", gate_up, split_fused((config.stack.feedforward.d_ff,) * 2)),
    )


_GEMMA = {"stack.norm.unit_offset": True, "embedding.scaled": True}
_AROUND = {**_GEMMA, "stack.norm.placement": "around"}
_HEAD_NORM = {"stack.attention.qk_norm": True}
_PROJECTION_NORM = {**_HEAD_NORM, "stack.attention.qk_norm_over": "projection", "stack.norm.placement": "output"}
_LAYER_NORM = {"stack.norm.kind": "layer"}
_PLAIN_MLP = {**_LAYER_NORM, "stack.feedforward.kind": "mlp"}
_PHI = {**_PLAIN_MLP, "stack.parallel": True, "stack.shared_norm": True, "lm_head.bias": True}
_PHI |= dict.fromkeys(f"{ATTENTION_BIAS} stack.feedforward.bias".split(), True)
_PHI_NAMES = {"self_attn.o_proj": "self_attn.dense", "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}
_PHI_NAMES |= {"norm": "final_layernorm"}
_STARCODER: tuple[ConfigPart, ...] = (
    Field("use_bias", f"{ATTENTION_BIAS} stack.feedforward.bias", ConfigFields.boolean, True),
    *(
        Fixed(name, (usual,), "transformers does not compute it in this family.")
        for name, usual in (("mlp_type", "default"), ("norm_type", "layer_norm"), ("scale_attn_weights", True))
    ),
)
_STABLELM = (
    Field("use_qkv_bias", "stack.attention.bias", ConfigFields.boolean, False),
    Field("use_parallel_residual", "stack.parallel stack.shared_norm", ConfigFields.boolean, False),
)
_NO_HEAD_NORM = Fixed("qk_layernorm", (False,), "LayerNorm of queries and keys is not supported.")

FAMILIES = (
    _family("llama", "Llama", _BIAS, _MLP_BIAS),
    _family("mistral", "Mistral", _NO_BIAS, windows=Windows("all", default_window=4096), kv_heads=8),
    _family("ministral", "Ministral", _NO_BIAS, windows=Windows("pattern", _NEVER, 4096), kv_heads=8),
    _family("qwen2", "Qwen2", _QKV_BIAS, settings={"stack.attention.bias": True}, windows=_SWITCH),
    _family("qwen3", "Qwen3", _BIAS, settings=_HEAD_NORM, windows=_SWITCH, d_head=128),
    _family("arcee", "Arcee", _BIAS, _MLP_BIAS, settings={"stack.feedforward.kind": "mlp"}, act=_RELU2),
    _family(
        *("smollm3", "SmolLM3", _BIAS, _MLP_BIAS, ROPE_LAYERS),
        windows=Windows("switch"), rope=Rope(default_base=2e6), kv_heads=4, tied=True,
    ),
    _family("olmo2", "Olmo2", _BIAS, settings=_PROJECTION_NORM, eps=1e-5),
    _family(
        *("olmo3", "Olmo3", _BIAS), settings=_PROJECTION_NORM, eps=1e-5, windows=Windows("pattern", 4, 4096),
        rope=Rope(default_base=5e5, local_base="rope_local_base_freq", default_local_base=5e5),
    ),
    _family("phi3", "Phi3", _NO_BIAS, eps=1e-5, windows=Windows("all"), rope=_PHI3_ROPE, fused=True),
    _family(
        *("phi", "Phi", _NO_HEAD_NORM), settings=_PHI, renamed=_PHI_NAMES, eps=1e-5, eps_name="layer_norm_eps",
        act=activation("hidden_act", "gelu_new"), rope=Rope(partial=True, default_share=0.5),
    ),
    _family(
        "starcoder2", "Starcoder2", *_STARCODER, settings=_PLAIN_MLP, eps=1e-5, eps_name="norm_epsilon",
        act=_CODE_GELU, windows=Windows("all"), kv_heads=2, tied=True,
        renamed={"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"},
    ),
    _family(
        *("stablelm", "StableLm", *_STABLELM, _NO_HEAD_NORM), settings=_LAYER_NORM, eps=1e-5, eps_name="layer_norm_eps",
        kv_heads=32, rope=Rope(partial=True, default_share=0.25),
    ),
    _family("granite", "Granite", _BIAS, _MLP_BIAS, *_SCALES),
    _family("gemma", "Gemma", _BIAS, settings=_GEMMA, act=_OLD_GELU, d_head=256, tied=True),
    _family(
        *("gemma2", "Gemma2", _BIAS, _QUERY_SCALE, _SCORE_CAP, _USUAL_CAP), settings=_AROUND, act=_GELU,
        windows=Windows("pattern", 2, 4096), kv_heads=4, d_head=256, tied=True,
    ),
    _family(
        *("gemma3_text", "Gemma3", _BIAS, _QUERY_SCALE, _LOGIT_CAP), settings=_AROUND | _HEAD_NORM, act=_GELU,
        windows=Windows("pattern", 6, 4096), rope=Rope(default_base=1e6, local_base="rope_local_base_freq"),
        kv_heads=4, d_head=256, tied=True, text="Gemma3Text",
    ),
)  # fmt: skip
