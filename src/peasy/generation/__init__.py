"""Text generation: batched decoding engine, sampling, beam search, speculative decoding, packed linear layers.

May import: torch, checkpoint, models, nn, tokenization, config, errors. Imported by: verification, commands, server.
In: a model and token ids. Out: a stream of events, one for each token; callers print, stream or store them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.generation.decode import generate
    from peasy.generation.engine import Engine
    from peasy.generation.engine_thread import EngineThread
    from peasy.generation.limits import EngineLimits
    from peasy.generation.request import Request
    from peasy.generation.sampling import Sampler
    from peasy.generation.sampling_params import BeamSearchParams, SamplingParams

_MODULES = {
    "BeamSearchParams": "peasy.generation.sampling_params",
    "Sampler": "peasy.generation.sampling",
    "Engine": "peasy.generation.engine",
    "EngineLimits": "peasy.generation.limits",
    "Request": "peasy.generation.request",
    "EngineThread": "peasy.generation.engine_thread",
    "SamplingParams": "peasy.generation.sampling_params",
    "generate": "peasy.generation.decode",
}

__all__ = [
    "BeamSearchParams", "Engine", "EngineLimits", "EngineThread", "Request", "Sampler", "SamplingParams", "generate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'peasy.generation' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
