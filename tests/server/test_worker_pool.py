"""Worker pool: work beyond its limit is refused at once, and the next is taken when some has ended."""

import asyncio
import threading

import pytest
from anyio.from_thread import start_blocking_portal

from peasy.generation.request import Overloaded
from peasy.server.worker_pool import WorkerPool


def test_full_pool_refuses_at_once_and_takes_work_again():
    pool, may_end = WorkerPool(max_pending=3), threading.Event()

    async def fill():
        running = [asyncio.create_task(pool.run(may_end.wait)) for _ in range(3)]
        while pool.num_pending < 3:
            await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="3 requests are already pending") as refused:
            await asyncio.wait_for(pool.run(lambda: "too much"), 60)
        assert refused.value.retry_after
        may_end.set()
        assert await asyncio.gather(*running) == [True] * 3
        assert pool.num_pending == 0
        assert await pool.run(lambda: "next") == "next"

    try:
        with start_blocking_portal() as portal:  # a thread of its own: browser tests leave a loop in this one
            portal.call(fill)
    finally:
        may_end.set()
        pool.close()
