"""Engine limits: batch size, prefill chunk, queue length, cache bytes, slow-client timeout."""

from dataclasses import dataclass

from peasy.errors import InvalidInput
from peasy.generation.prefix_cache import PAGE_SIZE
from peasy.nn.config import check_minimums


@dataclass(frozen=True)
class EngineLimits:
    """Limits of the engine.

    `max_num_seqs`: sequences decoded in one batch. `prefill_chunk`: prompt tokens computed per step beside them, which
    bounds the time between two tokens. `max_queued_requests`, `max_queued_tokens` (prompts and possible output).
    `kv_cache_bytes` for running sequences, `prefix_cache_bytes` for shared prompt pages (0 = none).
    `max_pending_events` for a slow reader, for `slow_client_timeout` seconds. `max_n`: largest n of a request.
    """

    max_num_seqs: int = 32
    prefill_chunk: int = 128
    max_queued_requests: int = 256
    max_queued_tokens: int = 262_144
    kv_cache_bytes: int = 2**30
    prefix_cache_bytes: int = 2**28
    max_pending_events: int = 256
    slow_client_timeout: float = 30.0
    max_n: int = 16

    def __post_init__(self) -> None:
        check_minimums(
            self,
            max_num_seqs=1,
            prefill_chunk=PAGE_SIZE,
            max_queued_requests=1,
            max_queued_tokens=1,
            kv_cache_bytes=1,
            prefix_cache_bytes=0,
            max_pending_events=1,
            slow_client_timeout=0,
            max_n=1,
        )
        if self.prefill_chunk % PAGE_SIZE:
            raise InvalidInput(f"prefill_chunk is {self.prefill_chunk}.", hint=f"Give a multiple of {PAGE_SIZE}.")
