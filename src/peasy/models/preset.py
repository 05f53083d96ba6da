"""Model presets: published models and peasy's own sizes, read from TOML."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

from peasy.config import JsonDict, merge_settings
from peasy.errors import NotFound, did_you_mean
from peasy.models.config import ModelConfig, read_config
from peasy.parameters import Record

ModelKind = Literal["gpt", "encoder", "translator", "rnn", "cnn", "rnn-translator", "ngram", "words"]
"""Model kinds of peasy's own sizes: the preset of a kind and a size is "gpt-tiny"."""
ModelSize = Literal["tiny", "small", "base", "speedrun"]
"""Sizes of peasy's own models; speedrun is a small gpt with layers that only ONNX can export."""


class Preset(Record):
    """A named model config; `parameters` is the published parameter count (None = not published)."""

    name: str
    description: str
    config: ModelConfig
    parameters: int | None = None


def preset(name: str, **changes: object) -> ModelConfig:
    """Return the config of a preset, with some fields changed.

    >>> preset("gpt2").stack.num_layers
    12
    >>> preset("gpt-tiny", vocab_size=65, stack={"num_layers": 3}).stack.num_layers
    3
    """
    data = _table(name)
    return read_config(_config_fields(merge_settings(data, changes)), where=name)


def presets() -> list[Preset]:
    """Return all presets."""
    return [
        Preset(name, data["description"], read_config(_config_fields(data), where=name), data.get("parameters"))
        for name in _tables()
        for data in [_table(name)]
    ]


@cache
def _tables() -> dict[str, JsonDict]:
    tables: dict[str, JsonDict] = {}
    for file in sorted(files("peasy.models.presets").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            tables |= tomllib.loads(file.read_text(encoding="utf-8"))
    return tables


def _table(name: str) -> JsonDict:
    tables = _tables()
    if name not in tables:
        hint = did_you_mean(name, tables) or f"Known: {', '.join(tables)}."
        raise NotFound(f'There is no preset "{name}".', hint=hint)
    data = tables[name]
    if "inherits" not in data:
        return data
    inherited = {key: value for key, value in _table(data["inherits"]).items() if key != "parameters"}
    return merge_settings(inherited, data)


def _config_fields(data: JsonDict) -> JsonDict:
    return {key: value for key, value in data.items() if key not in ("description", "parameters", "inherits")}
