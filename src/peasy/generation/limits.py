"""Engine limits: batch size, prefill chunk, queue length, cache bytes, slow-client timeout; needs no torch."""

from typing import Annotated

from annotated_types import Ge

from peasy.errors import InvalidInput
from peasy.parameters import BoundedSettings

PAGE_SIZE = 32
"""Tokens per page of the prefix cache; only whole pages are shared."""


class EngineLimits(BoundedSettings):
    """Limits of the engine; each is also a flag of `peasy serve`.

    Args:
        max_num_seqs: Maximum number of sequences in a batch.
        prefill_chunk: Prompt tokens computed per step, fewer of a long prompt, where each takes longer; bounds the time
            between two tokens of the other sequences.
        max_queued_requests: Maximum number of queued requests.
        max_queued_tokens: Maximum number of queued tokens: prompts and their possible output.
        kv_cache_bytes: Memory in bytes for the KV cache of running sequences; None is no limit.
        prefix_cache_bytes: Memory in bytes for the prefix cache; 0 turns it off.
        slow_client_timeout: Seconds after which the request of a client that reads nothing is cancelled.
    """

    max_num_seqs: Annotated[int, Ge(1)] = 64
    prefill_chunk: Annotated[int, Ge(1)] = 128
    max_queued_requests: Annotated[int, Ge(1)] = 256
    max_queued_tokens: Annotated[int, Ge(1)] = 262_144
    kv_cache_bytes: Annotated[int, Ge(1)] | None = 2**30
    prefix_cache_bytes: Annotated[int, Ge(0)] = 2**28
    slow_client_timeout: Annotated[float, Ge(0)] = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefix_cache_bytes and self.prefill_chunk % PAGE_SIZE:
            raise InvalidInput(f"prefill_chunk is {self.prefill_chunk}.", hint=f"Give a multiple of {PAGE_SIZE}.")


_MANY = 2**62
UNLIMITED = EngineLimits(_MANY, _MANY, _MANY, _MANY, kv_cache_bytes=None, prefix_cache_bytes=0)
"""For a caller that waits for all of its own requests."""
