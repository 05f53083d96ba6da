"""Text generation: batched decoding engine, sampling, beam search, speculative decoding, packed linear layers.

May import: torch, checkpoint, models, nn, tokenization, config, errors. Imported by: verification, commands, server.
In: a model and token ids. Out: a stream of events, one for each token; callers print, stream or store them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.generation.beam import Beams, search
    from peasy.generation.decode import generate
    from peasy.generation.engine import Engine
    from peasy.generation.limit import Limits
    from peasy.generation.request import Request
    from peasy.generation.runner import Runner
    from peasy.generation.sampling import Chooser, Sampling
    from peasy.generation.speculation import decode_with_lookup

_HOMES = {
    "Beams": "peasy.generation.beam",
    "Chooser": "peasy.generation.sampling",
    "Engine": "peasy.generation.engine",
    "Limits": "peasy.generation.limit",
    "Request": "peasy.generation.request",
    "Runner": "peasy.generation.runner",
    "Sampling": "peasy.generation.sampling",
    "decode_with_lookup": "peasy.generation.speculation",
    "generate": "peasy.generation.decode",
    "search": "peasy.generation.beam",
}

__all__ = [
    "Beams", "Chooser", "Engine", "Limits", "Request", "Runner", "Sampling", "decode_with_lookup", "generate", "search",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'peasy.generation' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
