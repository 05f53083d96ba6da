"""Runs an engine in a thread of its own, so that any number of other threads can ask it."""

import threading
import time
from typing import Self

from peasy.generation.answer import Answer
from peasy.generation.engine import Engine
from peasy.generation.packed_team import disband
from peasy.generation.request import Request

_TICK = 0.05
"""Seconds between two looks at the clock while there is nothing to do: deadlines pass even then."""


class Runner:
    """`submit` gives an answer to iterate over; closing the answer cancels the request.

    >>> from peasy.models.build import build
    >>> from peasy.models.preset import preset
    >>> with Runner(Engine(build(preset("gpt-tiny"), seed=1))) as runner:
    ...     events = list(runner.submit(Request((1, 2, 3))))
    >>> len(events), events[-1].reason
    (21, 'length')
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._wake, self._stop = threading.Event(), False
        engine.wake = self._wake.set
        disband()  # whoever starts it has loaded and packed the model
        self._thread = threading.Thread(target=self._run, name="peasy-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Answer:
        """Ask; refuses at once what cannot be answered, and with `Overloaded` what cannot be answered now."""
        return self.engine.submit(request)

    @property
    def thread(self) -> int | None:
        """The system's number of the thread; None when it has ended."""
        return self._thread.native_id if self._thread.is_alive() else None

    def healthy(self, within: float = 5.0) -> bool:
        """Does the engine's heart beat? A long step is no illness, a step that does not end is."""
        return self._thread.is_alive() and self.engine.clock() - self.engine.heartbeat < within

    def drain(self, timeout: float | None = None) -> bool:
        """Take no more requests and answer those that are there; False if they did not end in time."""
        self.engine.waiting.close()
        end = None if timeout is None else time.monotonic() + timeout
        while not self.engine.idle and self._thread.is_alive():
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(_TICK / 5)
        return True

    def close(self, timeout: float = 10.0) -> None:
        """Cancel what runs, and end the thread."""
        self.engine.waiting.close()
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
                disband()  # an engine that waits stands in nobody's way
                self._wake.wait(_TICK)
                self._wake.clear()
        self.engine.cancel()
