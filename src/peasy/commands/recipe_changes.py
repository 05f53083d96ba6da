"""Changes to a training recipe, from a settings file, nested settings and the shortcuts `lr` and `batch_size`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peasy import config as config_reader
from peasy.errors import InvalidInput


def recipe_changes(
    settings: Mapping[str, Any] | None = None,
    *,
    config: str | Path | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Merge all changes: `settings` override the TOML or JSON file `config`; `lr` and `batch_size` override both.

    >>> recipe_changes({"optimizer": {"weight_decay": 0.1}}, lr=0.01, batch_size=8)
    {'optimizer': {'weight_decay': 0.1, 'lr': 0.01}, 'batch_size': 8}
    """
    from peasy.training.recipe import merge_settings

    changes: Any = {} if config is None else config_reader.load(config)
    if not isinstance(changes, Mapping):
        raise InvalidInput(f"{config} does not contain settings.", hint='For example {"batch_size": 32}.')
    changes = merge_settings(changes, settings or {})
    if lr is not None:
        changes = merge_settings(changes, {"optimizer": {"lr": lr}})
    return changes if batch_size is None else changes | {"batch_size": batch_size}
