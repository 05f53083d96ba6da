"""Engine limits: batch size, prefill chunk, queue length, cache bytes, slow-client timeout."""

from dataclasses import dataclass

from peasy.errors import InvalidInput
from peasy.generation.prefix import PAGE
from peasy.nn.part import check


@dataclass(frozen=True)
class Limits:
    """Limits of the engine.

    `max_num_seqs`: sequences decoded in one batch. `prefill_chunk`: prompt tokens computed per step beside them, which
    bounds the time between two tokens. `max_queued_requests`, `max_queued_tokens` (prompts and possible output).
    `kv_cache_bytes` for running sequences, `prefix_cache_bytes` for shared prompt pages (0 = none).
    `max_pending_events` for a slow reader, for `slow_client_timeout` seconds. `max_n`: largest n of a request.
    """

    rows: int = 32
    chunk: int = 128
    queue: int = 256
    queue_tokens: int = 262_144
    memory: int = 2**30
    prefixes: int = 2**28
    buffer: int = 256
    patience: float = 30.0
    choices: int = 16

    def __post_init__(self) -> None:
        check(self, rows=1, chunk=PAGE, queue=1, queue_tokens=1, memory=1, prefixes=0, buffer=1, patience=0, choices=1)
        if self.chunk % PAGE:
            raise InvalidInput(f"chunk is {self.chunk}.", hint=f"Give a multiple of {PAGE}.")
