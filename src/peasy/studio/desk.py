"""The desk: work that takes a while is done by a few, the rest waits in line, and the line has an end."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from peasy.errors import NoRoom

T = TypeVar("T")


class Busy(NoRoom):
    """The line at the desk is full; later there is likely to be room."""

    code = "overloaded"
    retry_after = 1.0


class Desk:
    """`run` does a piece of work in one of `workers` threads; at most `queue` pieces wait or go on at once."""

    def __init__(self, workers: int = 2, queue: int = 64) -> None:
        self.queue, self.waiting = queue, 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="peasy-desk")

    async def run(self, work: Callable[[], T]) -> T:
        """What the work gives; refuses at once where too much waits already."""
        if self.waiting >= self.queue:
            raise Busy(f"{self.waiting} requests are waiting already.", hint="Ask again in a second.")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _tidily, work)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Take nothing more; what goes on is waited for."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _tidily(work: Callable[[], T]) -> T:
    """Do it, and leave no threads behind that engines would have to share the processors with."""
    try:
        return work()
    finally:
        if "torch" in sys.modules:
            from peasy.generation.packed_team import disband

            disband()
