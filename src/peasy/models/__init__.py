"""WHOLE MODELS: which blocks stand together; decoder, encoder, encoder-decoder and the baselines, one protocol.

May import: torch, nn, formula, config, errors. Imported by: checkpoint and every room above it.
In: a configuration, then ids. Out: scores for the next token, vectors, and the steps a tap asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.models.config import Config, read_config
    from peasy.models.protocol import Model

_HOMES = {
    "Config": "peasy.models.config",
    "Model": "peasy.models.protocol",
    "read_config": "peasy.models.config",
}
"""Imported when first asked for, so that settings can be read without torch."""

__all__ = ["Config", "Model", "read_config"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'peasy.models' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
