"""Bounded thread pool for blocking work."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from peasy.generation.openmp import release_openmp_threads
from peasy.generation.request import Overloaded

T = TypeVar("T")
_NUM_WORKERS = 2


class WorkerPool:
    """Thread pool: `run` executes a call in one of its threads; at most `max_pending` calls are pending at once."""

    def __init__(self, max_pending: int = 64) -> None:
        self.max_pending, self.num_pending = max_pending, 0
        self.working = set[int]()
        """Threads with a call, also one whose request has ended."""
        self._executor = ThreadPoolExecutor(_NUM_WORKERS, thread_name_prefix="peasy-worker")

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; raise at once if the queue is full."""
        if self.num_pending >= self.max_pending:
            raise Overloaded(f"{self.num_pending} requests are already pending.", retry_after=1.0)
        self.num_pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._run_and_release_threads, work)
        finally:
            self.num_pending -= 1

    def close(self) -> None:
        """Accept no more work; what still runs goes on, but its request has ended."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _run_and_release_threads(self, work: Callable[[], T]) -> T:
        """Run the work, then release its OpenMP threads, which would compete with the engines for cores."""
        self.working.add(thread := threading.get_ident())
        try:
            return work()
        finally:
            release_openmp_threads()
            self.working.discard(thread)
