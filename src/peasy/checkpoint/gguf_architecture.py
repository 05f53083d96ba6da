"""Architectures of llama.cpp: tensor names, settings, and what llama.cpp would compute differently, as one table."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from peasy.checkpoint.huggingface.registry import family_for
from peasy.checkpoint.huggingface.weight_map import (
    ADD_ONE,
    IDENTITY,
    NORMS,
    QUERY_KEY_VALUE,
    WeightMap,
    WeightRule,
    block_names,
    fused_rules,
    interleave_rope,
    module_rules,
    split_fused,
)
from peasy.errors import InvalidInput
from peasy.models.config import DecoderConfig, ModelConfig
from peasy.nn import config as nn_config
from peasy.nn.position import rope_frequency
from peasy.parameters import Record

if TYPE_CHECKING:
    from gguf import GGUFWriter

_DEFAULT_CONTEXT_LENGTH = 4096
"""Context length written for a model without a limit."""


class GGUFArchitecture(Record):
    """A model family in llama.cpp.

    `interleaved_rope`: RoPE rotates adjacent pairs there, two halves of a head here. `fused`: parts stored as one
    matrix. `full_every`: every n-th layer is without a sliding window; 0 = llama.cpp computes none. `local_base`: RoPE
    base of its local layers. `rope_except_every`: every n-th layer has no RoPE. `has_scales`: factors of embedding,
    scores, residuals and logits are stored. `has_softcaps`: both soft caps are always computed. `needs_head`: a tied
    head is stored once more. `needs_biases`: attention must have biases.
    """

    name: str
    activation: nn_config.ActivationName
    interleaved_rope: bool = False
    has_biases: bool = True
    fused: Literal["nothing", "qkv", "qkv and gate"] = "nothing"
    full_every: int = 0
    local_base: float | None = None
    rope_except_every: int = 0
    has_scales: bool = False
    has_softcaps: bool = False
    needs_head: bool = False
    needs_biases: bool = False


ARCHITECTURES = {
    "gpt2": GGUFArchitecture("gpt2", "gelu-tanh", fused="qkv"),
    "llama": GGUFArchitecture("llama", "silu", interleaved_rope=True),
    "mistral": GGUFArchitecture("llama", "silu", interleaved_rope=True),
    "arcee": GGUFArchitecture("arcee", "relu-squared", interleaved_rope=True, has_biases=False),
    "qwen2": GGUFArchitecture("qwen2", "silu"),
    "qwen3": GGUFArchitecture("qwen3", "silu", has_biases=False),
    "smollm3": GGUFArchitecture("smollm3", "silu", interleaved_rope=True, has_biases=False, rope_except_every=4),
    "olmo2": GGUFArchitecture("olmo2", "silu", has_biases=False),
    "olmo3": GGUFArchitecture("olmo2", "silu", has_biases=False, full_every=4),
    "phi3": GGUFArchitecture("phi3", "silu", fused="qkv and gate"),
    "phi": GGUFArchitecture("phi2", "gelu-tanh", needs_head=True),
    "starcoder2": GGUFArchitecture("starcoder2", "gelu-tanh"),
    "stablelm": GGUFArchitecture("stablelm", "silu", needs_head=True),
    "granite": GGUFArchitecture("granite", "silu", interleaved_rope=True, has_biases=False, has_scales=True),
    "gpt_neox": GGUFArchitecture("gptneox", "gelu", fused="qkv", needs_head=True, needs_biases=True),
    "falcon": GGUFArchitecture("falcon", "gelu", has_biases=False, fused="qkv"),
    "gemma": GGUFArchitecture("gemma", "gelu-tanh", has_biases=False),
    "gemma2": GGUFArchitecture("gemma2", "gelu-tanh", has_biases=False, full_every=2, has_softcaps=True),
    "gemma3_text": GGUFArchitecture("gemma3", "gelu-tanh", has_biases=False, full_every=6, local_base=10_000.0),
}

_NORM_NAMES = {
    "pre": "attn_norm - ffn_norm -",
    "output": "post_attention_norm - post_ffw_norm -",
    "around": "attn_norm post_attention_norm ffn_norm post_ffw_norm",
}
_FALCON_NORM_NAMES = {True: "attn_norm - - -", False: "attn_norm_2 - attn_norm -"}


def find_architecture(config: ModelConfig, preferred: str | None = None) -> tuple[GGUFArchitecture, DecoderConfig]:
    """Return llama.cpp's architecture for this model; refuse what llama.cpp would compute differently."""
    if not isinstance(config, DecoderConfig):
        raise InvalidInput(f"GGUF export does not support models of kind {config.kind}.", hint="Only decoders.")
    family = family_for(config, preferred).name
    if family not in ARCHITECTURES:
        supported = ", ".join(sorted({architecture.name for architecture in ARCHITECTURES.values()}))
        raise InvalidInput(f"There is no GGUF export for {family}.", hint=f"There is one for {supported}.")
    architecture, activation = ARCHITECTURES[family], config.stack.feedforward.activation
    if activation != architecture.activation:
        unsupported = f"{architecture.name} with the activation {activation}"
        raise InvalidInput(f"llama.cpp does not support {unsupported}.", hint=f"It uses {architecture.activation}.")
    for difference in _differences(architecture, config):
        raise InvalidInput(f"llama.cpp does not support {architecture.name} with {difference}.")
    return architecture, config


def _differences(architecture: GGUFArchitecture, config: DecoderConfig) -> list[str]:
    """Return what llama.cpp would compute differently, in words."""
    attention, mlp, position = config.stack.attention, config.stack.feedforward, config.position
    usual_scale = attention.scale is None or abs(attention.scale * d_head(config) ** 0.5 - 1) < 1e-6
    scaling, skipped = getattr(position, "scaling", None), getattr(position, "skipped_layers", ())
    every, yarn = architecture.rope_except_every, nn_config.YarnRopeScaling
    usual_yarn = not isinstance(scaling, yarn) or scaling == yarn(scaling.factor, scaling.original_max_seq_len)
    checks = {
        "a classification head": config.classifier is not None,
        "attention before the MLP": architecture.name == "falcon" and not config.stack.parallel,
        "biases": not architecture.has_biases and (attention.bias or attention.output_bias or mlp.bias),
        "attention without biases": architecture.needs_biases and not attention.bias,
        "a custom attention scale": not usual_scale and not architecture.has_scales,
        "a rope_type longrope": isinstance(scaling, nn_config.LongRopeScaling),
        "these settings of yarn": not usual_yarn,
        "these layers without RoPE": skipped
        != tuple(layer for layer in range(config.stack.num_layers) if every and not (layer + 1) % every),
        "this RoPE base of local layers": isinstance(position, nn_config.RotaryConfig)
        and (position.local_base or position.base) != (architecture.local_base or position.base),
        "soft caps left out": architecture.has_softcaps and not (attention.softcap and config.lm_head.softcap),
    }
    return [name for name, applies in checks.items() if applies]


def weight_map(config: DecoderConfig, architecture: GGUFArchitecture) -> WeightMap:
    """Return the two-way map between GGUF tensor names and peasy's."""
    external, internal = "blk.{layer}.", "decoder.blocks.{layer}."
    norm, is_falcon = config.stack.norm, architecture.name == "falcon"
    norm_names = _FALCON_NORM_NAMES[config.stack.shared_norm] if is_falcon else _NORM_NAMES[norm.placement]
    norms = module_rules(external, internal, {
        **block_names(norm_names, NORMS),
        "attn_q_norm": "attention.query_norm", "attn_k_norm": "attention.key_norm",
    })  # fmt: skip
    norms += module_rules("", "", {"output_norm": "decoder.norm"})
    if getattr(norm, "unit_offset", False):
        norms = tuple(WeightRule(rule.external, rule.internal, ADD_ONE) for rule in norms)
    return WeightMap(
        (
            WeightRule("token_embd.weight", "embedding.token.weight"),
            WeightRule("position_embd.weight", "embedding.position.weight"),
            *_fused_rules(config, architecture, external, internal),
            *_query_key_rules(config, architecture, external, internal),
            *norms,
            *module_rules(external, internal, {
                "attn_v": "attention.value", "attn_output": "attention.output", "ffn_gate": "feedforward.gate",
                "ffn_up": "feedforward.up", "ffn_down": "feedforward.down",
            }),
            *module_rules("", "", {"output": "lm_head"}),
        )
    )  # fmt: skip


def _fused_rules(
    config: DecoderConfig, architecture: GGUFArchitecture, external: str, internal: str
) -> list[WeightRule]:
    if architecture.fused == "nothing":
        return []
    attention, d_ff = config.stack.attention, config.stack.feedforward.d_ff
    kv_size = (attention.num_kv_heads or attention.num_heads) * d_head(config)
    qkv = split_fused((attention.num_heads * d_head(config), kv_size, kv_size))
    rules = [*fused_rules(f"{external}attn_qkv", internal, QUERY_KEY_VALUE, qkv)]
    if architecture.fused == "qkv and gate":
        gate_up = tuple(f"{internal}feedforward.{part}.weight" for part in ("gate", "up"))
        rules.append(WeightRule(f"{external}ffn_up.weight", gate_up, split_fused((d_ff, d_ff))))
    return rules


def _query_key_rules(
    config: DecoderConfig, architecture: GGUFArchitecture, external: str, internal: str
) -> list[WeightRule]:
    attention = config.stack.attention
    heads = {"query": attention.num_heads, "key": attention.num_kv_heads or attention.num_heads}
    return [
        WeightRule(
            f"{external}attn_{part[0]}.{kind}",
            f"{internal}attention.{part}.{kind}",
            interleave_rope(number) if architecture.interleaved_rope else IDENTITY,
        )
        for part, number in heads.items()
        for kind in ("weight", "bias")
    ]


def rope_factors(config: DecoderConfig) -> dict[str, Tensor]:
    """Return the RoPE frequency factors of Llama 3 scaling, which llama.cpp reads as a tensor."""
    position = config.position
    is_llama3 = isinstance(getattr(position, "scaling", None), nn_config.Llama3RopeScaling)
    if not isinstance(position, nn_config.RotaryConfig) or not is_llama3:
        return {}
    width, unscaled = d_head(config), replace(position, scaling=None)
    return {"rope_freqs.weight": rope_frequency(width, unscaled) / rope_frequency(width, position)}


def write_metadata(writer: "GGUFWriter", architecture: GGUFArchitecture, config: DecoderConfig) -> None:
    """Write the settings of the model."""
    stack, attention, width = config.stack, config.stack.attention, d_head(config)
    length, window = config.max_seq_len or _DEFAULT_CONTEXT_LENGTH, attention.window
    windows = [attention.window_for_layer(layer) for layer in range(stack.num_layers)]
    every = architecture.full_every
    if every and windows == [window if (layer + 1) % every else None for layer in range(stack.num_layers)] and window:
        writer.add_sliding_window(window)
    else:  # llama.cpp computes no window; up to its length it has no effect
        length = min([length, *(window for window in windows if window)])
        if every:
            writer.add_sliding_window(length)
    values: dict[str, object] = {
        "context_length": length, "embedding_length": config.d_model, "block_count": stack.num_layers,
        "feed_forward_length": stack.feedforward.d_ff, "head_count": attention.num_heads,
        "head_count_kv": attention.num_kv_heads or attention.num_heads, "key_length": width, "value_length": width,
        "vocab_size": config.vocab_size, "attn_logit_softcapping": attention.softcap,
        "final_logit_softcapping": config.lm_head.softcap,
    }  # fmt: skip
    is_layer_norm = isinstance(stack.norm, nn_config.LayerNormConfig)
    values["layer_norm_eps" if is_layer_norm else "layer_norm_rms_eps"] = stack.norm.eps
    if architecture.name == "gptneox":
        values["parallel_residual"] = stack.parallel
    if architecture.has_scales:
        values |= {"embedding_scale": config.embedding.multiplier, "residual_scale": stack.residual_scale}
        values |= {"logit_scale": config.lm_head.divisor, "attention_scale": attention.scale or width**-0.5}
    for name, value in values.items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)
    if isinstance(config.position, nn_config.RotaryConfig):
        _write_rope(writer, config.position, width)


def _write_rope(writer: "GGUFWriter", position: nn_config.RotaryConfig, width: int) -> None:
    import gguf

    writer.add_rope_dimension_count(position.rotated_width(width))
    writer.add_rope_freq_base(position.base)
    if isinstance(position.scaling, nn_config.LinearRopeScaling):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(position.scaling.factor)
    if isinstance(position.scaling, nn_config.YarnRopeScaling):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(position.scaling.factor)
        writer.add_rope_scaling_orig_ctx_len(position.scaling.original_max_seq_len)


def d_head(config: DecoderConfig) -> int:
    """Return the width of a head."""
    return config.stack.attention.d_head or config.d_model // config.stack.attention.num_heads
