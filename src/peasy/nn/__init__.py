"""Neural network layers: attention, KV cache, masks, positions, norms, MLP, recurrent cells, taps, interventions.

May import: torch, formula, config, errors. Imported by: models and every package above it.
In: hidden states, a mask, a KV cache, a tap. Out: hidden states, and captured activations through the tap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.nn.kv_cache import KVCache
    from peasy.nn.simple import SelfAttention
    from peasy.nn.tap import Tap

_LAZY_IMPORTS = {"KVCache": "peasy.nn.kv_cache", "SelfAttention": "peasy.nn.simple", "Tap": "peasy.nn.tap"}
"""Imported lazily, so that configs can be read without torch."""

__all__ = ["KVCache", "SelfAttention", "Tap"]


def __getattr__(name: str) -> object:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'peasy.nn' has no attribute {name!r}")
    return getattr(import_module(_LAZY_IMPORTS[name]), name)
