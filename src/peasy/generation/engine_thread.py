"""Engine thread: runs an engine in the background; any thread may submit requests."""

import threading
from typing import Self

from peasy.generation.engine import Engine
from peasy.generation.openmp import release_openmp_threads

_IDLE_SECONDS = 0.05
"""Seconds between two steps while idle, so that deadlines are still checked."""


class EngineThread:
    """Background thread that steps an engine; the `submit` of that engine may be called from any thread.

    >>> from peasy.generation.request import Request
    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> with EngineThread(Engine(build(preset("gpt-tiny"), seed=1))) as thread:
    ...     events = list(thread.engine.submit(Request((1, 2, 3))))
    >>> len(events), events[-1].reason
    (21, 'length')
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        engine.model.eval()
        if engine.limits.kv_cache_bytes is not None:
            _ = engine.footprint  # measured here: a thread that submits would keep OpenMP workers
        self._wake, self._stop = threading.Event(), False
        engine.wake = self._wake.set
        release_openmp_threads()  # the calling thread has loaded and packed the model: release its OpenMP workers
        self._thread = threading.Thread(target=self._run, name="peasy-engine", daemon=True)
        self._thread.start()

    @property
    def native_thread_id(self) -> int | None:
        """Native id of the thread, or None if it has ended."""
        return self._thread.native_id if self._thread.is_alive() else None

    def close(self, timeout: float = 10.0) -> None:
        """Cancel all requests and end the thread."""
        self.engine.queue.close()
        self._stop = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop:
            try:
                busy = self.engine.step()
            except Exception as error:
                self.engine.fail(error)
                busy = False
            if not busy:
                release_openmp_threads()  # idle: leave the CPUs to other threads
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()
        self.engine.cancel()
