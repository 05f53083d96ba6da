"""Sliding windows in config.json: which layers attend to a window, by a list, a pattern or a first layer."""

from typing import Literal

from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import Settings
from peasy.checkpoint.huggingface.rope import FULL, LOCAL
from peasy.errors import InvalidInput
from peasy.parameters import Record

WINDOW, WINDOWED_LAYERS = "stack.attention.window", "stack.attention.windowed_layers"


class Windows(Record):
    """Sliding windows of a family.

    "none": it has none. "all": one window for all layers. "switch": use_sliding_window turns it on, in layer_types or
    from max_window_layers on. "pattern": layer_types, by default every `full_every`-th layer is without a window.
    `default_window`: of a missing field.
    """

    style: Literal["none", "all", "switch", "pattern"] = "none"
    full_every: int = 1
    default_window: int | None = None

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the window and its layers."""
        if self.style == "none":
            fields.require_value("sliding_window", reason="This family has no sliding window.")
            return
        layers = settings["stack.num_layers"]
        default = None if "sliding_window" in fields.data else self.default_window  # null means none
        settings[WINDOW] = window = fields.integer("sliding_window", default)
        if self.style == "all":
            return
        types = read_layer_types(fields, layers)
        if self.style == "pattern":
            fields.ignore("sliding_window_pattern _sliding_window_pattern")
            pattern = fields.data.get("sliding_window_pattern") or fields.data.get("_sliding_window_pattern")
            every = pattern if type(pattern) is int and pattern > 0 else self.full_every
            usual = tuple(layer for layer in range(layers) if (layer + 1) % every)
        else:
            usual = tuple(range(fields.integer("max_window_layers", 28, minimum=0), layers))
            if not fields.boolean("use_sliding_window", False) or window is None:
                settings[WINDOW] = None
                return
        settings[WINDOWED_LAYERS] = usual if types is None else types

    def write(self, settings: Settings) -> dict[str, object]:
        """Return the fields of this family."""
        fields: dict[str, object] = {} if self.style == "none" else {"sliding_window": settings[WINDOW]}
        if self.style in ("pattern", "switch"):
            fields["layer_types"] = write_layer_types(settings)
        if self.style == "switch":
            fields["use_sliding_window"] = settings[WINDOW] is not None
            fields["max_window_layers"] = settings["stack.num_layers"]
        return fields


def read_layer_types(fields: ConfigFields, layers: int) -> tuple[int, ...] | None:
    """Read layer_types: the layers with a sliding window, or None if there is no such list."""
    if not fields.has("layer_types"):
        return None
    types, known = fields.data["layer_types"], (FULL, LOCAL)
    if isinstance(types, list) and "chunked_attention" in types:
        raise InvalidInput(f"{fields.where}: layer_types has chunked_attention, which is not supported.")
    if not isinstance(types, list) or len(types) != layers or any(kind not in known for kind in types):
        raise fields.invalid("layer_types", f"a list of {layers} strings, each {' or '.join(known)}")
    return tuple(layer for layer, kind in enumerate(types) if kind == LOCAL)


def write_layer_types(settings: Settings, full: str = FULL, local: str = LOCAL) -> list[str]:
    """Return the kind of each layer."""
    layers = range(settings["stack.num_layers"])
    windowed = layers if settings[WINDOWED_LAYERS] is None else settings[WINDOWED_LAYERS]
    return [local if settings[WINDOW] is not None and layer in windowed else full for layer in layers]
