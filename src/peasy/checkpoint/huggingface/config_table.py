"""Config table: fields of a family's config.json and peasy's settings of the same meaning; read and written by it."""

from collections.abc import Callable
from typing import Any, Protocol

from peasy.checkpoint.huggingface.config_fields import (
    FROM_HF_ACTIVATION,
    REQUIRED,
    TO_HF_ACTIVATION,
    ConfigFields,
    WeightNames,
)
from peasy.config import to_plain
from peasy.models.config import ModelConfig
from peasy.nn.config import ActivationName
from peasy.parameters import Record

Settings = dict[str, Any]
"""Settings of a model by dotted path, such as stack.attention.num_heads."""

HEADS, KV_HEADS, D_HEAD = (f"stack.attention.{name}" for name in ("num_heads", "num_kv_heads", "d_head"))
SCALE, D_FF = "stack.attention.scale", "stack.feedforward.d_ff"
ACTIVATION = "stack.feedforward.activation"
ATTENTION_BIAS = "stack.attention.bias stack.attention.output_bias"


class ConfigPart(Protocol):
    """Some fields of config.json and the settings they stand for."""

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the fields into `settings`, which has what parts before this one read."""

    def write(self, settings: Settings) -> dict[str, object]:
        """Return the fields for these settings."""


def _unchanged(value: object) -> object:
    return value


class Field(Record):
    """One field and one setting of the same value.

    `names`: of several, separated by spaces, the first is read and all are written. `settings`: likewise, all are set
    and the first is written. `kind`: the method of `ConfigFields` that reads it. `default`: of a missing field, or a
    function of the settings. `decode` and `encode`: from the field's value to the setting's and back. `null`: what is
    written for a setting that is null. `nullable`: a field that is null is not a missing one.
    """

    names: str
    settings: str
    kind: Callable[..., object] = ConfigFields.integer
    default: object = REQUIRED
    decode: Callable[[Any], object] = _unchanged
    encode: Callable[[Any], object] = _unchanged
    null: object = None
    nullable: bool = False

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the field."""
        name, *copies = self.names.split()
        fields.ignore(copies)
        default = self.default(settings) if callable(self.default) else self.default
        value = self.kind(fields, name, None if self.nullable and name in fields.data else default)
        settings |= dict.fromkeys(self.settings.split(), self.decode(value))

    def write(self, settings: Settings) -> dict[str, object]:
        """Return the field."""
        value = settings.get(self.settings.split()[0])
        return dict.fromkeys(self.names.split(), self.null if value is None else self.encode(value))


class Fixed(Record):
    """A field that must have one of these values or be missing, else it is refused with this reason."""

    name: str
    values: tuple[object, ...]
    reason: str

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Refuse any other value."""
        fields.require_value(self.name, *self.values, reason=self.reason)

    def write(self, settings: Settings) -> dict[str, object]:
        """Return nothing: it is what transformers assumes."""
        return {}


class Custom(Record):
    """Fields that need functions of their own."""

    read: Callable[[ConfigFields, WeightNames, Settings], None]
    write: Callable[[Settings], dict[str, object]]


class TiedHead(Record):
    """tie_word_embeddings; a head that is stored with other values than the embedding is untied in any case."""

    embedding: str
    head: str = "lm_head.weight"
    default: bool = True

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the field, and compare the weights."""
        tied = fields.boolean("tie_word_embeddings", self.default)
        settings["lm_head.tied"] = tied and not weights.differ(self.head, self.embedding)

    def write(self, settings: Settings) -> dict[str, object]:
        """Return the field; a model without a head counts as tied."""
        return {"tie_word_embeddings": settings.get("lm_head.tied", True)}


class TokenIdFields(Record):
    """Special token ids; `start` is the fallback field of decoder_start_token_id."""

    start: str = "decoder_start_token_id"

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the ids; -1 means none."""
        ids = {role: fields.integer(f"{role}_token_id", None, minimum=-1) for role in ("pad", "bos")}
        ids = {role: None if id == -1 else id for role, id in ids.items()}
        for role in ("decoder_start", "unk", "forced_bos"):
            ids[role] = fields.integer(f"{role}_token_id", None, minimum=0)
        if ids["decoder_start"] is None:
            ids["decoder_start"] = fields.integer(self.start, None, minimum=0)
        ids["eos"] = fields.token_ids("eos_token_id")
        settings |= {f"special_tokens.{role}": id for role, id in ids.items()}

    def write(self, settings: Settings) -> dict[str, object]:
        """Return the ids; of those that few models have, only the ones that exist."""
        ids = {
            role: settings[f"special_tokens.{role}"] for role in ("pad", "bos", "eos", "decoder_start", "forced_bos")
        }
        ids["eos"] = ids["eos"] if len(ids["eos"]) > 1 else next(iter(ids["eos"]), None)
        usual = ("pad", "bos", "eos")
        return {f"{role}_token_id": id for role, id in ids.items() if role in usual or id is not None}


def sizes(names: str) -> tuple[Field, ...]:
    """Return the fields of vocabulary size, width, number of layers and of heads, and width of the MLP, if named."""
    kinds = {"stack.num_layers": ConfigFields.num_layers}
    settings = ("vocab_size", "d_model", "stack.num_layers", HEADS, D_FF)
    pairs = zip(names.split(), settings, strict=False)
    return tuple(Field(name, setting, kinds.get(setting, ConfigFields.integer)) for name, setting in pairs)


def activation(
    name: str, default: str, setting: str = ACTIVATION, *, gelu: ActivationName = "gelu", tanh: str = "gelu_new"
) -> Field:
    """Return the field of an activation function; `gelu`: what that name means, `tanh`: the name of gelu-tanh."""
    names, written = {**FROM_HF_ACTIVATION, "gelu": gelu}, {**TO_HF_ACTIVATION, "gelu-tanh": tanh}
    return Field(
        name, setting, lambda fields, *field: fields.choice(field[0], names, field[1]), default, encode=written.get
    )


def length(default: object = REQUIRED, name: str = "max_position_embeddings", *, unlimited: int | None = None) -> Field:
    """Return the field of the maximum sequence length; `unlimited`: what is written for a model without one."""
    return Field(name, "max_seq_len", ConfigFields.integer, default, null=unlimited)


def settings_of(config: ModelConfig) -> Settings:
    """Return the settings of a config by path; KV heads, width of heads and scale are explicit."""
    settings = _flatten(to_plain(config))
    for stack in ("stack", "encoder", "decoder"):
        if f"{stack}.num_layers" in settings:
            heads, kv_heads, d_head, scale = (path.replace("stack", stack) for path in (HEADS, KV_HEADS, D_HEAD, SCALE))
            settings[kv_heads] = settings[kv_heads] or settings[heads]
            settings[d_head] = settings[d_head] or settings["d_model"] // settings[heads]
            settings[scale] = settings[scale] or settings[d_head] ** -0.5
    return settings


def nest(settings: Settings) -> dict[str, Any]:
    """Return settings by path as nested tables.

    >>> nest({"d_model": 8, "stack.attention.num_heads": 2, "stack.num_layers": 1})
    {'d_model': 8, 'stack': {'attention': {'num_heads': 2}, 'num_layers': 1}}
    """
    tables: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, name = path.split(".")
        table = tables
        for parent in parents:
            table = table.setdefault(parent, {})
        table[name] = value
    return tables


def drop(settings: Settings, part: str) -> None:
    """Remove the settings of one part, such as lm_head."""
    for path in [path for path in settings if path.startswith(f"{part}.")]:
        del settings[path]


def _flatten(data: object, path: str = "") -> Settings:
    if not isinstance(data, dict):
        return {path: data}
    nested = [_flatten(value, f"{path}.{key}" if path else key) for key, value in data.items()]
    return {key: value for part in nested for key, value in part.items()}
