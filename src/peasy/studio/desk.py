"""Bounded thread pool for blocking work."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from peasy.errors import NoRoom

T = TypeVar("T")


class Busy(NoRoom):
    """The queue of the thread pool is full; the client should retry."""

    code = "overloaded"
    retry_after = 1.0


class Desk:
    """Thread pool: `run` executes a call in one of `workers` threads; at most `queue` calls are pending at once."""

    def __init__(self, workers: int = 2, queue: int = 64) -> None:
        self.queue, self.waiting = queue, 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="peasy-worker")

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; raise at once if the queue is full."""
        if self.waiting >= self.queue:
            raise Busy(f"{self.waiting} requests are already pending.", hint="Retry in a second.")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _tidily, work)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Accept no more work and wait for what is running."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _tidily(work: Callable[[], T]) -> T:
    """Run the work, then release its OpenMP threads, which would compete with the engines for cores."""
    try:
        return work()
    finally:
        if "torch" in sys.modules:
            from peasy.generation.packed_team import disband

            disband()
