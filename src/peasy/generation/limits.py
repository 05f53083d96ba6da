"""Engine limits: batch size, prefill chunk, queue length, cache bytes, slow-client timeout."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt

from peasy.errors import InvalidInput
from peasy.generation.sampling_params import check_bounds


@dataclass(frozen=True)
class EngineLimits:
    """Limits of the engine; each is also a flag of `peasy serve`.

    Args:
        max_num_seqs: Maximum number of sequences in a batch.
        prefill_chunk: Prompt tokens computed per step; bounds the time between two tokens of the other sequences.
        max_queued_requests: Maximum number of queued requests.
        max_queued_tokens: Maximum number of queued tokens: prompts and their possible output.
        kv_cache_bytes: Memory in bytes for the KV cache of running sequences.
        prefix_cache_bytes: Memory in bytes for the prefix cache; 0 turns it off.
        max_pending_events: Events kept for a client that reads slowly; after that its sequence pauses.
        slow_client_timeout: Seconds after which the request of a paused client is cancelled.
        max_n: Largest n of a request.
    """

    max_num_seqs: Annotated[int, Ge(1)] = 32
    prefill_chunk: Annotated[int, Gt(0)] = 128
    max_queued_requests: Annotated[int, Ge(1)] = 256
    max_queued_tokens: Annotated[int, Ge(1)] = 262_144
    kv_cache_bytes: Annotated[int, Ge(1)] = 2**30
    prefix_cache_bytes: Annotated[int, Ge(0)] = 2**28
    max_pending_events: Annotated[int, Ge(1)] = 256
    slow_client_timeout: Annotated[float, Ge(0)] = 30.0
    max_n: Annotated[int, Ge(1)] = 16

    def __post_init__(self) -> None:
        from peasy.generation.prefix_cache import PAGE_SIZE  # needs torch, which the help of `peasy serve` does not

        check_bounds(self)
        if self.prefill_chunk % PAGE_SIZE:
            raise InvalidInput(f"prefill_chunk is {self.prefill_chunk}.", hint=f"Give a multiple of {PAGE_SIZE}.")
