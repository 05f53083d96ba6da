"""RoPE settings in config.json: base, scaling, partial rotation, and another base in layers with a sliding window."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from peasy.checkpoint.huggingface.family import ConfigFields
from peasy.errors import InvalidInput
from peasy.nn import config as nn_config

FULL, LOCAL = "full_attention", "sliding_attention"
"""Names of the two kinds of layers in layer_types and rope_parameters."""


@dataclass(frozen=True)
class RopeNames:
    """Names and defaults of the RoPE fields of a family.

    `partial`: it may rotate only a share of each head. `local_base`: it has another base in its local layers.
    """

    base: str = "rope_theta"
    default_base: float = 10_000.0
    partial: bool = False
    share: str = "partial_rotary_factor"
    default_share: float = 1.0
    local_base: str | None = None
    default_local_base: float = 10_000.0


DEFAULT_NAMES = RopeNames()


def read_rope(fields: ConfigFields, names: RopeNames = DEFAULT_NAMES) -> nn_config.RotaryConfig:
    """Read the RoPE settings: all in rope_parameters in newer files, rope_theta and rope_scaling in older ones."""
    share = fields.number(names.share, names.default_share, maximum=1.0)
    base = fields.number(names.base, names.default_base, minimum=1.0)
    if names.base != "rope_theta":  # some files have both names
        fields.require_value("rope_theta", base, int(base), reason=f"This contradicts {names.base}.")
    if names.share != "partial_rotary_factor":
        fields.require_value("partial_rotary_factor", share, reason=f"This contradicts {names.share}.")
    local_base: float | None = None
    if names.local_base is not None:
        local_base = fields.number(names.local_base, names.default_local_base, minimum=1.0)
    rope = fields.nested("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    fields.ignore(["rope_parameters", "rope_scaling", "original_max_position_embeddings"])
    if names.local_base and (rope.has(FULL) or rope.has(LOCAL)):
        local = rope.nested(LOCAL)
        local_base = local.number("rope_theta", local_base, minimum=1.0)
        local.require_value("rope_type", "default", reason="Local layers cannot be scaled.")
        local.reject_unknown()
        rope.reject_unknown()
        rope = rope.nested(FULL)
    share = rope.number("partial_rotary_factor", share, maximum=1.0)
    if share != 1 and not names.partial:
        message = f"{fields.where}: partial_rotary_factor is {share}."
        raise InvalidInput(message, hint="This family rotates whole heads.")
    base = rope.number("rope_theta", base, minimum=1.0)
    scaling = _read_scaling(fields, rope)
    rope.reject_unknown()
    return nn_config.RotaryConfig(base, scaling, share, local_base if local_base != base or scaling else None)


def _read_scaling(fields: ConfigFields, rope: ConfigFields) -> nn_config.RopeScaling | None:
    rope_type = rope.data.get("rope_type") or rope.data.get("type") or "default"
    rope.ignore(["rope_type", "type"])
    if rope_type == "default":
        return None
    if rope_type == "linear":
        return nn_config.LinearRopeScaling(rope.number("factor", minimum=1.0))
    if rope_type == "llama3":
        return nn_config.Llama3RopeScaling(
            factor=rope.number("factor", minimum=1.0),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_max_seq_len=rope.integer("original_max_position_embeddings"),
        )
    if rope_type == "yarn":
        return _read_yarn(fields, rope)
    if rope_type in ("longrope", "su"):
        return _read_longrope(fields, rope)
    message = f"{rope.where}: rope_type {rope_type!r} is not supported."
    raise InvalidInput(message, hint="Supported: default, linear, llama3, yarn, longrope.")


def _read_yarn(fields: ConfigFields, rope: ConfigFields) -> nn_config.YarnRopeScaling:
    factor = rope.number("factor", minimum=1.0)
    attention = rope.number("attention_factor", None)
    scales = rope.number("mscale", None), rope.number("mscale_all_dim", None)
    if attention is None and all(scales):
        one, other = (0.1 * scale * math.log(factor) + 1.0 for scale in scales)
        attention = one / other
    length = rope.integer("original_max_position_embeddings", None) or fields.integer("max_position_embeddings")
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    return nn_config.YarnRopeScaling(factor, length, fast, slow, attention, rope.boolean("truncate", True))


def _read_longrope(fields: ConfigFields, rope: ConfigFields) -> nn_config.LongRopeScaling:
    longest = fields.integer("max_position_embeddings")
    original = rope.integer("original_max_position_embeddings", None) or fields.integer(
        "original_max_position_embeddings", longest
    )
    factor = rope.number("factor", longest / original)
    attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return nn_config.LongRopeScaling(
        rope.numbers("short_factor"), rope.numbers("long_factor"), original, rope.number("attention_factor", attention)
    )


def write_rope(position: object, names: RopeNames = DEFAULT_NAMES) -> dict[str, object]:
    """Return rope_parameters."""
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": getattr(position, "base", 10_000.0)}
    if (share := getattr(position, "share", 1.0)) != names.default_share or share != 1:
        rope["partial_rotary_factor"] = share
    rope |= _write_scaling(getattr(position, "scaling", None))
    if names.local_base is None:
        return rope
    local = getattr(position, "local_base", None) or rope["rope_theta"]
    return {FULL: rope, LOCAL: {"rope_type": "default", "rope_theta": local}}


def _write_scaling(scaling: nn_config.RopeScaling | None) -> Mapping[str, object]:
    if scaling is None:
        return {}
    if isinstance(scaling, nn_config.LinearRopeScaling):
        return {"rope_type": "linear", "factor": scaling.factor}
    length = {"original_max_position_embeddings": scaling.original_max_seq_len}
    if isinstance(scaling, nn_config.Llama3RopeScaling):
        frequencies = {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
        return {"rope_type": "llama3", "factor": scaling.factor, **frequencies, **length}
    attention = {} if scaling.attention_factor is None else {"attention_factor": scaling.attention_factor}
    if isinstance(scaling, nn_config.LongRopeScaling):
        factors = {"short_factor": list(scaling.short_factors), "long_factor": list(scaling.long_factors)}
        return {"rope_type": "longrope", **factors, **length, **attention}
    betas = {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow, "truncate": scaling.truncate}
    return {"rope_type": "yarn", "factor": scaling.factor, **betas, **length, **attention}
