"""CHOOSING TOKENS: from scores to the next id, one token at a time.

May import: torch, checkpoint, models, nn, text, config, errors. Imported by: proof, workbench and the doors.
In: a model and ids. Out: events, one for each step; whoever runs them prints, streams or stores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.generation.decode import Sampling, Written, generate

_HOMES = dict.fromkeys(("Sampling", "Written", "generate"), "peasy.generation.decode")

__all__ = ["Sampling", "Written", "generate"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'peasy.generation' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
