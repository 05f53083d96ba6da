"""Llama, Mistral, Qwen 2, Qwen 3 and Arcee: one weight map; the differences are options."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from peasy.checkpoint.huggingface.family import TO_HF_ACTIVATION, ConfigFields, ModelFamily, WeightNames
from peasy.checkpoint.huggingface.weight_map import WeightMap, WeightRule, module_rules
from peasy.errors import InvalidInput
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config

IGNORED_FIELDS = "max_sequence_length is_llama_config"

_UNLIMITED_CONTEXT = 2**17
"""max_position_embeddings of a model without a limit: the field must have a number."""


@dataclass(frozen=True)
class _LlamaOptions:
    """Differences between the families: biases, query/key norms, sliding windows.

    `attention_bias` "config": read from config.json; "qkv": query, key and value projections have a bias.
    `default_kv_heads` and `default_d_head` are the defaults if config.json has none.
    """

    attention_bias: Literal["config", "qkv", "none"] = "none"
    gated_mlp: bool = True
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: Literal["none", "all", "layers"] = "none"
    default_kv_heads: int | None = None
    default_d_head: int | None = None


def read_config(fields: ConfigFields, weights: WeightNames, *, options: _LlamaOptions) -> DecoderConfig:
    """Convert a config of this family to peasy's."""
    fields.ignore(IGNORED_FIELDS)
    fields.require_value(
        "rope_interleaved", False, reason="peasy's RoPE rotates the two halves of a head, not adjacent pairs."
    )
    d_model, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_key_value_heads", options.default_kv_heads or num_heads)
    d_head = fields.integer("head_dim", options.default_d_head or max(d_model // num_heads, 1))
    layers = fields.num_layers("num_hidden_layers")
    reads_bias = options.attention_bias == "config"
    bias = fields.boolean("attention_bias", False) if reads_bias else options.attention_bias == "qkv"
    window, windowed_layers = _read_sliding_window(fields, options, layers)
    attention = nn_config.AttentionConfig(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads if num_kv_heads != num_heads else None,
        d_head=d_head if d_head * num_heads != d_model else None,
        bias=bias,
        output_bias=bias and reads_bias,
        window=window,
        windowed_layers=windowed_layers,
        qk_norm=options.qk_norm,
    )
    feedforward = (nn_config.GatedMLPConfig if options.gated_mlp else nn_config.MLPConfig)(
        d_ff=fields.integer("intermediate_size"),
        activation=fields.activation("hidden_act", "silu" if options.gated_mlp else "relu2"),
        bias=options.mlp_bias and fields.boolean("mlp_bias", False),
    )
    tied = fields.boolean("tie_word_embeddings", False)
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size"),
        d_model=d_model,
        stack=nn_config.StackConfig(
            layers, attention, feedforward, nn_config.RMSNormConfig(eps=fields.number("rms_norm_eps", 1e-6))
        ),
        max_seq_len=fields.integer("max_position_embeddings"),
        position=_read_rope(fields),
        lm_head=nn_config.LMHeadConfig(tied=tied and not weights.differ("lm_head.weight", "model.embed_tokens.weight")),
        special_tokens=fields.special_tokens(),
    )


def write_config(config: DecoderConfig, *, options: _LlamaOptions) -> dict[str, object]:
    """Convert peasy's config to one of this family."""
    attention, feedforward = config.stack.attention, config.stack.feedforward
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": feedforward.d_ff,
        "num_hidden_layers": config.stack.num_layers,
        "num_attention_heads": attention.num_heads,
        "num_key_value_heads": attention.num_kv_heads or attention.num_heads,
        "head_dim": attention.d_head or config.d_model // attention.num_heads,
        "hidden_act": TO_HF_ACTIVATION[feedforward.activation],
        "max_position_embeddings": config.max_seq_len or _UNLIMITED_CONTEXT,
        "rms_norm_eps": config.stack.norm.eps,
        "rope_parameters": _write_rope(config.position),
        "tie_word_embeddings": config.lm_head.tied,
        **({"attention_bias": attention.bias} if options.attention_bias == "config" else {}),
        **({"mlp_bias": feedforward.bias} if options.mlp_bias else {}),
        **_write_sliding_window(attention, options, config.stack.num_layers),
    }


def weight_map(config: DecoderConfig) -> WeightMap:
    """Return the weight map; rules for weights that a family does not have are never used."""
    external, internal = "model.layers.{layer}.", "decoder.blocks.{layer}."
    return WeightMap(
        rules=(
            WeightRule("model.embed_tokens.weight", "embedding.token.weight"),
            *module_rules(
                external,
                internal,
                {
                    "input_layernorm": "attention_norm",
                    "self_attn.q_proj": "attention.query",
                    "self_attn.k_proj": "attention.key",
                    "self_attn.v_proj": "attention.value",
                    "self_attn.o_proj": "attention.output",
                    "self_attn.q_norm": "attention.query_norm",
                    "self_attn.k_norm": "attention.key_norm",
                    "post_attention_layernorm": "feedforward_norm",
                    "mlp.gate_proj": "feedforward.gate",
                    "mlp.up_proj": "feedforward.up",
                    "mlp.down_proj": "feedforward.down",
                },
            ),
            WeightRule("model.norm.weight", "decoder.norm.weight"),
            WeightRule("lm_head.weight", "lm_head.weight"),
        ),
        tied_copies={"lm_head.weight": "model.embed_tokens.weight"},
        derived_buffers=(f"{external}self_attn.rotary_emb.inv_freq",),
    )


def _read_sliding_window(
    fields: ConfigFields, options: _LlamaOptions, layers: int
) -> tuple[int | None, tuple[int, ...] | None]:
    if options.sliding_window == "none":
        fields.require_value("sliding_window", reason="This family has no sliding window.")
        return None, None
    window = fields.integer("sliding_window", None)
    if options.sliding_window == "all":
        return window, None
    last = fields.integer("max_window_layers", layers, minimum=0)
    fields.ignore(["layer_types"])
    if not fields.boolean("use_sliding_window", False) or window is None:
        return None, None
    if not fields.has("layer_types"):
        return window, tuple(range(last, layers))
    kinds = fields.data["layer_types"]
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in known for kind in kinds):
        raise fields.invalid("layer_types", f"a list of {layers} strings, each {' or '.join(known)}")
    return window, tuple(i for i, kind in enumerate(kinds) if kind == "sliding_attention")


def _write_sliding_window(
    attention: nn_config.AttentionConfig, options: _LlamaOptions, layers: int
) -> dict[str, object]:
    if options.sliding_window == "none":
        return {}
    if options.sliding_window == "all":
        return {"sliding_window": attention.window}
    types = ["full_attention" if attention.window_for_layer(i) is None else "sliding_attention" for i in range(layers)]
    return {
        "use_sliding_window": attention.window is not None,
        "sliding_window": attention.window,
        "max_window_layers": layers,
        "layer_types": types,
    }


def _read_rope(fields: ConfigFields) -> nn_config.RotaryConfig:
    """Read the RoPE settings: all in rope_parameters in newer files, rope_theta and rope_scaling in older ones."""
    fields.require_value("partial_rotary_factor", 1, 1.0, reason="Partial rotary embeddings are not supported.")
    base = fields.number("rope_theta", 10_000.0, minimum=1.0)
    newer = fields.has("rope_parameters")
    rope = fields.nested("rope_parameters" if newer else "rope_scaling")
    fields.ignore(["rope_parameters", "rope_scaling"])
    rope.require_value("partial_rotary_factor", 1, 1.0, reason="Partial rotary embeddings are not supported.")
    base = rope.number("rope_theta", base, minimum=1.0)
    rope_type = rope.data.get("rope_type") or rope.data.get("type") or "default"
    rope.ignore(["rope_type", "type"])
    if rope_type == "default":
        scaling: nn_config.LinearRopeScaling | nn_config.Llama3RopeScaling | None = None
    elif rope_type == "linear":
        scaling = nn_config.LinearRopeScaling(rope.number("factor", minimum=1.0))
    elif rope_type == "llama3":
        scaling = nn_config.Llama3RopeScaling(
            factor=rope.number("factor", minimum=1.0),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_max_seq_len=rope.integer("original_max_position_embeddings"),
        )
    else:
        raise InvalidInput(
            f"{rope.where}: rope_type {rope_type!r} is not supported.", hint="Supported: default, linear, llama3."
        )
    rope.reject_unknown()
    return nn_config.RotaryConfig(base, scaling)


def _write_rope(position: object) -> dict[str, object]:
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": getattr(position, "base", 10_000.0)}
    scaling = getattr(position, "scaling", None)
    if isinstance(scaling, nn_config.LinearRopeScaling):
        rope |= {"rope_type": "linear", "factor": scaling.factor}
    if isinstance(scaling, nn_config.Llama3RopeScaling):
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_seq_len,
        }
    return rope


def _make_family(name: str, architecture: str, options: _LlamaOptions) -> ModelFamily:
    return ModelFamily(
        name,
        DecoderConfig,
        (f"{architecture}ForCausalLM", f"{architecture}Model"),
        partial(read_config, options=options),
        partial(write_config, options=options),
        weight_map,
        prefix="model.",
    )


FAMILIES = (
    _make_family("llama", "Llama", _LlamaOptions(attention_bias="config", mlp_bias=True)),
    _make_family("mistral", "Mistral", _LlamaOptions(sliding_window="all", default_kv_heads=8)),
    _make_family("qwen2", "Qwen2", _LlamaOptions(attention_bias="qkv", sliding_window="layers")),
    _make_family(
        "qwen3",
        "Qwen3",
        _LlamaOptions(attention_bias="config", qk_norm=True, sliding_window="layers", default_d_head=128),
    ),
    _make_family("arcee", "Arcee", _LlamaOptions(attention_bias="config", gated_mlp=False, mlp_bias=True)),
)
