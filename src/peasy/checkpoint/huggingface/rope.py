"""RoPE settings in config.json: base, scaling, partial rotation, and another base in layers with a sliding window."""

import math

from peasy.checkpoint.huggingface.config_fields import REQUIRED, ConfigFields, PlannedWeights, WeightNames
from peasy.checkpoint.huggingface.config_table import Custom, Field, Settings
from peasy.errors import InvalidInput
from peasy.parameters import Record

FULL, LOCAL = "full_attention", "sliding_attention"
"""Names of the two kinds of layers in layer_types and rope_parameters."""

_ORIGINAL = "original_max_position_embeddings"
_LENGTH = Field(_ORIGINAL, "original_max_seq_len")


def _at_least_one(fields: ConfigFields, name: str, default: object) -> float:
    return fields.number(name, default, minimum=1.0)


def _number(name: str, default: float | None = REQUIRED) -> Field:
    return Field(name, name, ConfigFields.number, default)


_FACTOR = Field("factor", "factor", _at_least_one)
_ATTENTION = _number("attention_factor", None)
_SCALINGS = {
    "linear": (_FACTOR,),
    "llama3": (_FACTOR, _number("low_freq_factor"), _number("high_freq_factor"), _LENGTH),
    "yarn": (
        _FACTOR, _number("beta_fast", 32.0), _number("beta_slow", 1.0),
        Field("truncate", "truncate", ConfigFields.boolean, True), _LENGTH, _ATTENTION,
    ),
    "longrope": (
        Field("short_factor", "short_factors", ConfigFields.numbers),
        Field("long_factor", "long_factors", ConfigFields.numbers),
        _LENGTH, _ATTENTION,
    ),
}  # fmt: skip
"""Fields of each rope_type."""


class Rope(Record):
    """RoPE of a family: all in rope_parameters in newer files, rope_theta and rope_scaling in older ones.

    `partial`: it may rotate only a share of each head. `local_base`: it has another base in its local layers.
    `original_length`: the length before scaling, if config.json does not tell it; else the maximum.
    """

    base: str = "rope_theta"
    default_base: float = 10_000.0
    partial: bool = False
    share: str = "partial_rotary_factor"
    default_share: float = 1.0
    local_base: str | None = None
    default_local_base: float = 10_000.0
    original_length: int | None = None

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the position settings."""
        share = fields.number(self.share, self.default_share, maximum=1.0)
        base = fields.number(self.base, self.default_base, minimum=1.0)
        if self.base != "rope_theta":  # some files have both names
            fields.require_value("rope_theta", base, int(base), reason=f"This contradicts {self.base}.")
        if self.share != "partial_rotary_factor":
            fields.require_value("partial_rotary_factor", share, reason=f"This contradicts {self.share}.")
        local_base: float | None = None
        if self.local_base is not None:
            local_base = fields.number(self.local_base, self.default_local_base, minimum=1.0)
        rope = fields.nested("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
        fields.ignore(["rope_parameters", "rope_scaling", _ORIGINAL])
        if self.local_base and (rope.has(FULL) or rope.has(LOCAL)):
            local = rope.nested(LOCAL)
            local_base = local.number("rope_theta", local_base, minimum=1.0)
            local.require_value("rope_type", "default", reason="Local layers cannot be scaled.")
            local.reject_unknown()
            rope.reject_unknown()
            rope = rope.nested(FULL)
        share = rope.number("partial_rotary_factor", share, maximum=1.0)
        if share != 1 and not self.partial:
            message = f"{fields.where}: partial_rotary_factor is {share}."
            raise InvalidInput(message, hint="This family rotates whole heads.")
        base = rope.number("rope_theta", base, minimum=1.0)
        scaling = _read_scaling(fields, rope, self.original_length)
        local_base = local_base if local_base != base or scaling else None
        position = {"kind": "rotary", "base": base, "scaling": scaling, "share": share, "local_base": local_base}
        settings |= {f"position.{name}": value for name, value in position.items()}
        if scaling and scaling["kind"] == "longrope":
            settings["max_seq_len"] = scaling["original_max_seq_len"]

    def write(self, settings: Settings) -> dict[str, object]:
        """Return rope_parameters."""
        rope: dict[str, object] = {"rope_theta": settings.get("position.base", 10_000.0)}
        if (share := settings.get("position.share", 1.0)) != self.default_share or share != 1:
            rope["partial_rotary_factor"] = share
        scaling = {path.removeprefix("position.scaling."): value for path, value in settings.items()}
        rope["rope_type"] = settings.get("position.scaling.kind", "default")
        for field in _SCALINGS.get(str(rope["rope_type"]), ()):
            rope |= {name: value for name, value in field.write(scaling).items() if value is not None}
        if self.local_base is None:
            return {"rope_parameters": rope}
        local = settings.get("position.local_base") or rope["rope_theta"]
        return {"rope_parameters": {FULL: rope, LOCAL: {"rope_type": "default", "rope_theta": local}}}


def _read_scaling(fields: ConfigFields, rope: ConfigFields, original_length: int | None) -> Settings | None:
    kind = rope.data.get("rope_type") or rope.data.get("type") or "default"
    rope.ignore(["rope_type", "type"])
    kind = "longrope" if kind == "su" else kind
    if kind == "default":
        rope.reject_unknown()
        return None
    if kind not in _SCALINGS:
        message = f"{rope.where}: rope_type {kind!r} is not supported."
        raise InvalidInput(message, hint=f"Supported: default, {', '.join(_SCALINGS)}.")
    if kind in ("yarn", "longrope"):
        _fill_in(fields, rope, kind, original_length)
    settings: Settings = {"kind": kind}
    for field in _SCALINGS[kind]:
        field.read(rope, PlannedWeights(), settings)
    rope.reject_unknown()
    return settings


def _fill_in(fields: ConfigFields, rope: ConfigFields, kind: str, original_length: int | None) -> None:
    """Make explicit what newer files leave out: the original length and the attention factor."""
    longest, attention = fields.integer("max_position_embeddings"), None
    original = longest if kind == "yarn" else fields.integer(_ORIGINAL, original_length or longest)
    original = rope.integer(_ORIGINAL, original)
    if kind == "longrope":
        factor = rope.number("factor", longest / original)
        attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    else:
        factor = rope.number("factor", minimum=1.0)
        scales = rope.number("mscale", None), rope.number("mscale_all_dim", None)
        if all(scales):
            one, other = (0.1 * scale * math.log(factor) + 1.0 for scale in scales)
            attention = one / other
    rope.data = {**rope.data, _ORIGINAL: original, "attention_factor": rope.number("attention_factor", attention)}


def _read_rope_layers(fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
    """Read which layers have no RoPE: a list of 0 and 1, or every n-th."""
    layers, interval = settings["stack.num_layers"], fields.integer("no_rope_layer_interval", 4)
    rotated = fields.data.get("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(layers)]
    fields.ignore(["no_rope_layers"])
    if not isinstance(rotated, list) or len(rotated) != layers or any(flag not in (0, 1) for flag in rotated):
        raise fields.invalid("no_rope_layers", f"a list of {layers} numbers, each 0 or 1")
    settings["position.skipped_layers"] = tuple(layer for layer, flag in enumerate(rotated) if not flag)


def _write_rope_layers(settings: Settings) -> dict[str, object]:
    skipped = settings.get("position.skipped_layers", ())
    return {"no_rope_layers": [int(layer not in skipped) for layer in range(settings["stack.num_layers"])]}


ROPE_LAYERS = Custom(_read_rope_layers, _write_rope_layers)
"""Layers without RoPE (SmolLM3)."""
