"""Llama, Mistral, Qwen 2, Qwen 3 and Arcee: one weight map; the differences are options."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from peasy.checkpoint.huggingface.family import (
    ACTIVATIONS,
    THEIR_ACTIVATIONS,
    Family,
    Parts,
    read_special,
    write_special,
)
from peasy.checkpoint.huggingface.fields import MOST_LAYERS, Fields
from peasy.checkpoint.huggingface.rule import Rule, Table, modules
from peasy.errors import InvalidInput
from peasy.models.config import DecoderConfig
from peasy.nn.part import Attention, BandScaling, Gated, Head, LinearScaling, Plain, RootNorm, Rotary, Stack

IGNORED = "max_sequence_length is_llama_config"

UNLIMITED = 2**17
"""max_position_embeddings of a model without a limit: the field must have a number."""


@dataclass(frozen=True)
class Options:
    """Differences between the families: biases, query/key norms, sliding windows.

    `key_heads` and `d_head` are the defaults if config.json has none.
    """

    bias: Literal["set", "query-key-value", "none"] = "none"
    gated: bool = True
    feedforward_bias: bool = False
    norm_heads: bool = False
    window: Literal["none", "all", "layers"] = "none"
    key_heads: int | None = None
    d_head: int | None = None


def read(fields: Fields, stored: Parts, *, options: Options) -> DecoderConfig:
    """Convert a config of this family to peasy's."""
    fields.ignore(IGNORED)
    fields.only("rope_interleaved", False, why="peasy's RoPE rotates the two halves of a head, not adjacent pairs.")
    d_model, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    key_heads = fields.whole("num_key_value_heads", options.key_heads or heads)
    d_head = fields.whole("head_dim", options.d_head or max(d_model // heads, 1))
    layers = fields.whole("num_hidden_layers", most=MOST_LAYERS)
    bias, output_bias = _read_bias(fields, options)
    window, windowed = _read_window(fields, options, layers)
    attention = Attention(
        heads=heads,
        key_heads=key_heads if key_heads != heads else None,
        d_head=d_head if d_head * heads != d_model else None,
        bias=bias,
        output_bias=output_bias,
        window=window,
        windowed=windowed,
        norm_heads=options.norm_heads,
    )
    feedforward = (Gated if options.gated else Plain)(
        width=fields.whole("intermediate_size"),
        activation=fields.choice("hidden_act", ACTIVATIONS, "silu" if options.gated else "relu2"),
        bias=options.feedforward_bias and fields.flag("mlp_bias", False),
    )
    tied = fields.flag("tie_word_embeddings", False)
    return DecoderConfig(
        vocabulary=fields.whole("vocab_size"),
        d_model=d_model,
        stack=Stack(layers, attention, feedforward, RootNorm(epsilon=fields.number("rms_norm_eps", 1e-6))),
        context=fields.whole("max_position_embeddings"),
        position=_read_rotary(fields),
        head=Head(tied=tied and not stored.differ("lm_head.weight", "model.embed_tokens.weight")),
        special=read_special(fields),
    )


def write(config: DecoderConfig, *, options: Options) -> dict[str, Any]:
    """Convert peasy's config to one of this family."""
    attention, feedforward = config.stack.attention, config.stack.feedforward
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.d_model,
        "intermediate_size": feedforward.width,
        "num_hidden_layers": config.stack.layers,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.key_heads or attention.heads,
        "head_dim": attention.d_head or config.d_model // attention.heads,
        "hidden_act": THEIR_ACTIVATIONS[feedforward.activation],
        "max_position_embeddings": config.context or UNLIMITED,
        "rms_norm_eps": config.stack.norm.epsilon,
        "rope_parameters": _write_rotary(config.position),
        "tie_word_embeddings": config.head.tied,
        **({"attention_bias": attention.bias} if options.bias == "set" else {}),
        **({"mlp_bias": feedforward.bias} if options.feedforward_bias else {}),
        **_write_window(attention, options, config.stack.layers),
        **write_special(config.special),
    }


def table(config: DecoderConfig) -> Table:
    """Return the weight map; rules for weights that a family does not have are never used."""
    theirs, ours = "model.layers.{layer}.", "decoder.blocks.{layer}."
    return Table(
        rules=(
            Rule("model.embed_tokens.weight", "embedding.token.weight"),
            *modules(
                theirs,
                ours,
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
            Rule("model.norm.weight", "decoder.norm.weight"),
            Rule("lm_head.weight", "head.weight"),
        ),
        copies={"lm_head.weight": "model.embed_tokens.weight"},
        computed=(f"{theirs}self_attn.rotary_emb.inv_freq",),
    )


def _read_bias(fields: Fields, options: Options) -> tuple[bool, bool]:
    if options.bias == "set":
        bias = fields.flag("attention_bias", False)
        return bias, bias
    return options.bias == "query-key-value", False


def _read_window(fields: Fields, options: Options, layers: int) -> tuple[int | None, tuple[int, ...] | None]:
    if options.window == "none":
        fields.only("sliding_window", why="This family has no sliding window.")
        return None, None
    window = fields.whole("sliding_window", None)
    if options.window == "all":
        return window, None
    last = fields.whole("max_window_layers", layers, least=0)
    fields.ignore(["layer_types"])
    if not fields.flag("use_sliding_window", False) or window is None:
        return None, None
    if not fields.has("layer_types"):
        return window, tuple(range(last, layers))
    kinds = fields.data["layer_types"]
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in known for kind in kinds):
        raise fields.wrong("layer_types", f"a list of {layers} strings, each {' or '.join(known)}")
    return window, tuple(i for i, kind in enumerate(kinds) if kind == "sliding_attention")


def _write_window(attention: Attention, options: Options, layers: int) -> dict[str, Any]:
    if options.window == "none":
        return {}
    if options.window == "all":
        return {"sliding_window": attention.window}
    types = ["full_attention" if attention.window_of(i) is None else "sliding_attention" for i in range(layers)]
    return {
        "use_sliding_window": attention.window is not None,
        "sliding_window": attention.window,
        "max_window_layers": layers,
        "layer_types": types,
    }


def _read_rotary(fields: Fields) -> Rotary:
    """Read the RoPE settings: all in rope_parameters in newer files, rope_theta and rope_scaling in older ones."""
    fields.only("partial_rotary_factor", 1, 1.0, why="Partial rotary embeddings are not supported.")
    base = fields.number("rope_theta", 10_000.0, least=1.0)
    newer = fields.has("rope_parameters")
    rope = fields.table("rope_parameters" if newer else "rope_scaling")
    fields.ignore(["rope_parameters", "rope_scaling"])
    rope.only("partial_rotary_factor", 1, 1.0, why="Partial rotary embeddings are not supported.")
    base = rope.number("rope_theta", base, least=1.0)
    rope_type = rope.data.get("rope_type") or rope.data.get("type") or "default"
    rope.ignore(["rope_type", "type"])
    if rope_type == "default":
        scaling: LinearScaling | BandScaling | None = None
    elif rope_type == "linear":
        scaling = LinearScaling(rope.number("factor", least=1.0))
    elif rope_type == "llama3":
        scaling = BandScaling(
            factor=rope.number("factor", least=1.0),
            low=rope.number("low_freq_factor"),
            high=rope.number("high_freq_factor"),
            context=rope.whole("original_max_position_embeddings"),
        )
    else:
        raise InvalidInput(
            f"{rope.where}: rope_type {rope_type!r} is not supported.", hint="Supported: default, linear, llama3."
        )
    rope.close()
    return Rotary(base, scaling)


def _write_rotary(position: Any) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": getattr(position, "base", 10_000.0)}
    scaling = getattr(position, "scaling", None)
    if isinstance(scaling, LinearScaling):
        rope |= {"rope_type": "linear", "factor": scaling.factor}
    if isinstance(scaling, BandScaling):
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.context,
        }
    return rope


def _family(name: str, architecture: str, options: Options) -> Family:
    return Family(
        name,
        DecoderConfig,
        (f"{architecture}ForCausalLM", f"{architecture}Model"),
        partial(read, options=options),
        partial(write, options=options),
        table,
        prefix="model.",
    )


FAMILIES = (
    _family("llama", "Llama", Options(bias="set", feedforward_bias=True)),
    _family("mistral", "Mistral", Options(window="all", key_heads=8)),
    _family("qwen2", "Qwen2", Options(bias="query-key-value", window="layers")),
    _family("qwen3", "Qwen3", Options(bias="set", norm_heads=True, window="layers", d_head=128)),
    _family("arcee", "Arcee", Options(bias="set", gated=False, feedforward_bias=True)),
)
