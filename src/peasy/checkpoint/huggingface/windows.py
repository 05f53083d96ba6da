"""Sliding windows in config.json: which layers attend to a window, by a list, a pattern or a first layer."""

from dataclasses import dataclass
from typing import Literal

from peasy.checkpoint.huggingface.family import ConfigFields
from peasy.checkpoint.huggingface.rope import FULL, LOCAL
from peasy.errors import InvalidInput
from peasy.nn.config import AttentionConfig


@dataclass(frozen=True)
class WindowNames:
    """How a family writes its windows.

    "none": it has none. "all": one window for all layers. "switch": use_sliding_window turns it on, in layer_types or
    from max_window_layers on. "pattern": layer_types, by default every `full_every`-th layer is without a window.
    """

    style: Literal["none", "all", "switch", "pattern"] = "none"
    full_every: int = 1
    default_window: int | None = None


NO_WINDOWS = WindowNames()

Windows = tuple[int | None, tuple[int, ...] | None]
"""The window, and the layers that have it: None = all."""


def read_windows(fields: ConfigFields, names: WindowNames, layers: int) -> Windows:
    """Read the sliding window and its layers."""
    if names.style == "none":
        fields.require_value("sliding_window", reason="This family has no sliding window.")
        return None, None
    window = fields.integer("sliding_window", names.default_window)
    if names.style == "all":
        return window, None
    types = read_layer_types(fields, layers)
    if names.style == "pattern":
        fields.ignore("sliding_window_pattern _sliding_window_pattern")
        pattern = fields.data.get("sliding_window_pattern") or fields.data.get("_sliding_window_pattern")
        every = pattern if type(pattern) is int and pattern > 0 else names.full_every
        return window, tuple(layer for layer in range(layers) if (layer + 1) % every) if types is None else types
    first = fields.integer("max_window_layers", layers, minimum=0)
    if not fields.boolean("use_sliding_window", False) or window is None:
        return None, None
    return window, tuple(range(first, layers)) if types is None else types


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


def write_windows(attention: AttentionConfig, names: WindowNames, layers: int) -> dict[str, object]:
    """Return the fields of the sliding window."""
    if names.style == "none":
        return {}
    if names.style == "all":
        return {"sliding_window": attention.window}
    fields: dict[str, object] = {
        "sliding_window": attention.window,
        "layer_types": write_layer_types(attention, layers),
    }
    if names.style == "pattern":
        return fields
    return {"use_sliding_window": attention.window is not None, "max_window_layers": layers, **fields}


def write_layer_types(attention: AttentionConfig, layers: int) -> list[str]:
    """Return layer_types."""
    return [FULL if attention.window_for_layer(layer) is None else LOCAL for layer in range(layers)]
