"""The bounds of the engine: nothing in it grows without one."""

from dataclasses import dataclass

from peasy.errors import InvalidInput
from peasy.generation.prefix import PAGE
from peasy.nn.part import check


@dataclass(frozen=True)
class Limits:
    """How much at once, how much waiting, how many bytes.

    `rows`: texts that are written side by side. `chunk`: prompt tokens read in one step beside them, so that no text
    waits long for its next token. `queue` requests and `queue_tokens` (prompts and what may be written) wait at most.
    `memory` bytes for what running texts remember, `prefixes` bytes for pages that later prompts may share (0 = none).
    `buffer` events wait for a slow reader, for `patience` seconds. `choices`: the largest n of a request.
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
