"""Stopping: the first signal asks the run to save and end, a second one ends it at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Which signal has come, if any."""

    signal: int | None = None

    @property
    def asked(self) -> bool:
        """Whether the run should end now."""
        return self.signal is not None


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Inside, Ctrl-C and a request to terminate are only noted: a step is never torn. The second one is immediate.

    Python hands signals to the main thread alone; in any other, whoever runs the loop closes it.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    before = {each: signal.signal(each, note) for each in SIGNALS}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
