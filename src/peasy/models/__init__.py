"""Whole models behind one protocol: decoder, encoder, encoder-decoder, RNN, CNN, n-gram and word2vec baselines.

May import: torch, nn, formula, config, errors. Imported by: checkpoint and every package above it.
In: a config, then token ids. Out: logits, hidden states, and activations captured by a tap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.models.config import ModelConfig, read_config
    from peasy.models.protocol import Model

_LAZY_IMPORTS = {
    "ModelConfig": "peasy.models.config",
    "Model": "peasy.models.protocol",
    "read_config": "peasy.models.config",
}
"""Imported lazily, so that configs can be read without torch."""

__all__ = ["Model", "ModelConfig", "read_config"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'peasy.models' has no attribute {name!r}")
    return getattr(import_module(_LAZY_IMPORTS[name]), name)
