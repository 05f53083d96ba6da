"""Signal handling: the first SIGINT or SIGTERM requests a stop after the step, the second ends the process at once."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_SIGNALS = [signal.SIGINT, signal.SIGTERM]
if sys.platform == "win32":
    _SIGNALS.append(signal.SIGBREAK)  # Windows sends no other signal to a process in a group of its own


@dataclass
class StopRequest:
    """Stop request: the signal that arrived, if any."""

    signal: int | None = None
    at_once: bool = False
    """Whether a signal ends the program at once: there is nothing to save yet."""

    @property
    def requested(self) -> bool:
        """Whether the run should stop after this step."""
        return self.signal is not None


@contextlib.contextmanager
def stop_on_signal(*, at_once: bool = False) -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM inside the block instead of interrupting a step; a second signal acts immediately.

    With `at_once`, until the request's `at_once` is set to False, the first one does.
    Python delivers signals only to the main thread; in any other thread this does nothing.
    """
    request = StopRequest(at_once=at_once)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        request.signal = signal.SIGTERM if number == signal.SIGTERM else signal.SIGINT
        if request.at_once:
            raise KeyboardInterrupt if request.signal == signal.SIGINT else SystemExit(0)
        for handled in _SIGNALS:
            signal.signal(handled, signal.SIG_DFL)

    previous = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
