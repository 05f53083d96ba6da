"""Decoders of the Llama kind (Llama, Mistral, Qwen, Gemma, OLMo 2, Phi 3, ...): one reader; differences are options."""

from dataclasses import dataclass
from typing import Literal

from peasy.checkpoint.huggingface.classification import OF_LAST_TOKEN, read_classifier, write_labels
from peasy.checkpoint.huggingface.family import FROM_HF_ACTIVATION, TO_HF_ACTIVATION, ConfigFields, WeightNames
from peasy.checkpoint.huggingface.rope import DEFAULT_NAMES, RopeNames, read_rope, write_rope
from peasy.checkpoint.huggingface.weight_map import SplitFused, WeightMap, WeightRule, module_rules
from peasy.checkpoint.huggingface.windows import NO_WINDOWS, WindowNames, read_windows, write_windows
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = """
    max_sequence_length is_llama_config embd_pdrop resid_pdrop cache_implementation hidden_activation hidden_act
    original_max_position_embeddings
"""

_UNLIMITED_CONTEXT = 2**17
"""max_position_embeddings of a model without a limit: the field must have a number."""

_PRE_NORM = nn_config.RMSNormConfig()
_NORM_NAMES = {
    "pre": {"input_layernorm": "attention_norm", "post_attention_layernorm": "feedforward_norm"},
    "output": {"post_attention_layernorm": "attention_norm", "post_feedforward_layernorm": "feedforward_norm"},
    "around": {
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "attention_output_norm",
        "pre_feedforward_layernorm": "feedforward_norm",
        "post_feedforward_layernorm": "feedforward_output_norm",
    },
}


@dataclass(frozen=True)
class LlamaOptions:
    """Differences between the families.

    `attention_bias` "config": read from config.json; "qkv": query, key and value projections have a bias.
    `fused`: query, key and value are stored as one matrix, gate and up projection as another. `scales`: factors of
    embedding, scores, residuals and logits. `query_scale`: query_pre_attn_scalar is read. `gelu_is_tanh`: older files
    call the tanh approximation gelu.
    """

    attention_bias: Literal["config", "qkv", "none"] = "none"
    gated_mlp: bool = True
    mlp_bias: bool = False
    qk_norm: Literal["none", "head", "projection"] = "none"
    norm: nn_config.RMSNormConfig = _PRE_NORM
    windows: WindowNames = NO_WINDOWS
    rope: RopeNames = DEFAULT_NAMES
    skips_rope: bool = False
    fused: bool = False
    scaled_embedding: bool = False
    scales: bool = False
    query_scale: bool = False
    softcaps: Literal["none", "logits", "scores and logits"] = "none"
    gelu_is_tanh: bool = False
    activation: tuple[str, str] = ("hidden_act", "silu")
    default_kv_heads: int | None = None
    default_d_head: int | None = None
    default_tied: bool = False


def read_config(fields: ConfigFields, weights: WeightNames, *, options: LlamaOptions) -> DecoderConfig:
    """Convert a config of this family to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    fields.require_value(
        "rope_interleaved", False, reason="peasy's RoPE rotates the two halves of a head, not adjacent pairs."
    )
    fields.require_value("use_bidirectional_attention", False, reason="peasy's decoder is causal.")
    layers, tied = fields.num_layers("num_hidden_layers"), fields.boolean("tie_word_embeddings", options.default_tied)
    position, longest = read_rope(fields, options.rope), fields.integer("max_position_embeddings")
    if isinstance(position.scaling, nn_config.LongRopeScaling):
        longest = position.scaling.original_max_seq_len
    scales = _read_scales(fields) if options.scales else {}
    softcap = None if options.softcaps == "none" else fields.number("final_logit_softcapping", None)
    attention, classifier = _read_attention(fields, options, layers), read_classifier(fields, OF_LAST_TOKEN)
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=fields.integer("hidden_size"),
        stack=nn_config.StackConfig(
            layers,
            attention,
            _read_mlp(fields, options),
            nn_config.RMSNormConfig(
                options.norm.placement, fields.number("rms_norm_eps", options.norm.eps), options.norm.unit_offset
            ),
            residual_scale=scales.get("residual", 1.0),
        ),
        max_seq_len=longest,
        position=_skip_rope(fields, position, layers) if options.skips_rope else position,
        embedding=nn_config.EmbeddingConfig(options.scaled_embedding, multiplier=scales.get("embedding", 1.0)),
        classifier=classifier,
        lm_head=nn_config.LMHeadConfig()
        if classifier
        else nn_config.LMHeadConfig(
            tied=tied and not weights.differ("lm_head.weight", "model.embed_tokens.weight"),
            divisor=scales.get("logits", 1.0),
            softcap=softcap,
        ),
        special_tokens=fields.special_tokens(),
    )


def _read_attention(fields: ConfigFields, options: LlamaOptions, layers: int) -> nn_config.AttentionConfig:
    d_model, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_key_value_heads", options.default_kv_heads or num_heads)
    d_head = fields.integer("head_dim", options.default_d_head or max(d_model // num_heads, 1))
    reads_bias = options.attention_bias == "config"
    bias = fields.boolean("attention_bias", False) if reads_bias else options.attention_bias == "qkv"
    if not reads_bias:
        fields.require_value("attention_bias", bias, reason="Biases of this family are not supported.")
    window, windowed_layers = read_windows(fields, options.windows, layers)
    scale = fields.number("attention_multiplier", 1.0) if options.scales else None
    if options.query_scale:
        scale = fields.number("query_pre_attn_scalar", 256.0, minimum=1e-6) ** -0.5
    softcap = None
    if options.softcaps == "scores and logits":
        softcap = fields.number("attn_logit_softcapping", None)
    else:
        fields.require_value("attn_logit_softcapping", reason="transformers does not compute it in this family.")
    return nn_config.AttentionConfig(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads if num_kv_heads != num_heads else None,
        d_head=d_head if d_head * num_heads != d_model else None,
        bias=bias,
        output_bias=bias and reads_bias,
        window=window,
        windowed_layers=windowed_layers,
        qk_norm=options.qk_norm != "none",
        qk_norm_over="projection" if options.qk_norm == "projection" else "head",
        scale=scale,
        softcap=softcap,
    )


def _read_mlp(fields: ConfigFields, options: LlamaOptions) -> nn_config.FeedForwardConfig:
    name, default = options.activation
    activations = FROM_HF_ACTIVATION | ({"gelu": "gelu-tanh"} if options.gelu_is_tanh else {})
    return (nn_config.GatedMLPConfig if options.gated_mlp else nn_config.MLPConfig)(
        d_ff=fields.integer("intermediate_size"),
        activation=fields.choice(name, activations, default),
        bias=options.mlp_bias and fields.boolean("mlp_bias", False),
    )


def _read_scales(fields: ConfigFields) -> dict[str, float]:
    names = {"embedding": "embedding_multiplier", "residual": "residual_multiplier", "logits": "logits_scaling"}
    return {part: fields.number(name, 1.0) for part, name in names.items()}


def _skip_rope(fields: ConfigFields, rope: nn_config.RotaryConfig, layers: int) -> nn_config.RotaryConfig:
    """Read which layers have no RoPE: a list of 0 and 1, or every n-th."""
    interval = fields.integer("no_rope_layer_interval", 4)
    rotated = fields.data.get("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(layers)]
    fields.ignore(["no_rope_layers"])
    if not isinstance(rotated, list) or len(rotated) != layers or any(flag not in (0, 1) for flag in rotated):
        raise fields.invalid("no_rope_layers", f"a list of {layers} numbers, each 0 or 1")
    skipped = tuple(layer for layer, flag in enumerate(rotated) if not flag)
    return nn_config.RotaryConfig(rope.base, rope.scaling, rope.share, rope.local_base, skipped)


def write_config(config: DecoderConfig, *, options: LlamaOptions) -> dict[str, object]:
    """Convert peasy's config to one of this family."""
    stack, attention, feedforward = config.stack, config.stack.attention, config.stack.feedforward
    d_head = attention.d_head or config.d_model // attention.num_heads
    longest, activation = config.max_seq_len or _UNLIMITED_CONTEXT, TO_HF_ACTIVATION[feedforward.activation]
    fields: dict[str, object] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": feedforward.d_ff,
        "num_hidden_layers": stack.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_kv_heads or attention.num_heads,
        "head_dim": d_head,
        options.activation[0]: activation.replace("gelu_new", "gelu_pytorch_tanh"),
        "max_position_embeddings": longest,
        "rms_norm_eps": stack.norm.eps,
        "rope_parameters": write_rope(config.position, options.rope),
        "tie_word_embeddings": config.lm_head.tied,
        **({"attention_bias": attention.bias} if options.attention_bias == "config" else {}),
        **({"mlp_bias": feedforward.bias} if options.mlp_bias else {}),
        **write_windows(attention, options.windows, stack.num_layers),
        **write_labels(config.classifier),
    }
    if options.skips_rope:
        skipped = getattr(config.position, "skipped_layers", ())
        fields["no_rope_layers"] = [int(layer not in skipped) for layer in range(stack.num_layers)]
    if options.scales:
        fields |= {"embedding_multiplier": config.embedding.multiplier, "residual_multiplier": stack.residual_scale}
        fields |= {"logits_scaling": config.lm_head.divisor, "attention_multiplier": attention.scale or d_head**-0.5}
    if options.query_scale:
        fields["query_pre_attn_scalar"] = d_head if attention.scale is None else round(attention.scale**-2)
    if options.softcaps != "none":
        fields["final_logit_softcapping"] = config.lm_head.softcap
    if options.softcaps == "scores and logits":
        fields["attn_logit_softcapping"] = attention.softcap
    return fields


def weight_map(config: DecoderConfig, *, options: LlamaOptions) -> WeightMap:
    """Return the weight map; rules for weights that a family does not have are never used."""
    external, internal = "model.layers.{layer}.", "decoder.blocks.{layer}."
    projections = {
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "mlp.gate_proj": "feedforward.gate",
        "mlp.up_proj": "feedforward.up",
    }
    names = {
        "self_attn.o_proj": "attention.output",
        "self_attn.q_norm": "attention.query_norm",
        "self_attn.k_norm": "attention.key_norm",
        "mlp.down_proj": "feedforward.down",
        **_NORM_NAMES[options.norm.placement],
    }
    return WeightMap(
        rules=(
            WeightRule("model.embed_tokens.weight", "embedding.token.weight"),
            *(_fused_rules(config, external, internal) if options.fused else ()),
            *module_rules(external, internal, names if options.fused else names | projections),
            WeightRule("model.norm.weight", "decoder.norm.weight"),
            WeightRule("lm_head.weight", "lm_head.weight"),
            *module_rules("", "classifier.", {"score": "output"}),
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
        WeightRule(f"{external}self_attn.qkv_proj.weight", qkv, SplitFused(sizes)),
        WeightRule(f"{external}mlp.gate_up_proj.weight", gate_up, SplitFused((config.stack.feedforward.d_ff,) * 2)),
    )
