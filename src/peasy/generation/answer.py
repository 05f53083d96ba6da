"""The answer to one request while it is written: the engine puts events in at one end, a reader takes them out.

A reader may be slow. At most `buffer` events wait for it; then the request pauses: it keeps its memory but no longer
takes part. When nothing was taken for `patience` seconds, it ends ("slow") and its memory is freed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from peasy.generation.request import Ended, Event, Request


class Answer(Iterator[Event]):
    """Iterating waits for events, `take` does not; closing cancels. All of it may be done from any thread."""

    def __init__(self, request: Request, began: float, buffer: int, wake: Callable[[], None] = lambda: None) -> None:
        self.request, self.buffer, self.wake = request, buffer, wake
        self.began = began
        self.deadline = None if request.deadline is None else began + request.deadline
        self.paused_since: float | None = None
        self.reused = 0
        self.cancelled = False
        self.notify: Callable[[], None] | None = None
        self.open = set(range(request.n))
        self._events: deque[Event] = deque()
        self._ready = threading.Condition()

    @property
    def done(self) -> bool:
        """Has every choice ended? Events may still wait to be taken."""
        return not self.open

    @property
    def full(self) -> bool:
        """Is the reader so far behind that writing pauses?"""
        return len(self._events) >= self.buffer

    def put(self, event: Event) -> None:
        """For the engine: one more event. `notify`, if somebody set it, is called in the engine's thread."""
        with self._ready:
            self._events.append(event)
            if isinstance(event, Ended):
                self.open.discard(event.choice)
            self._ready.notify_all()
        if self.notify is not None:
            self.notify()

    def take(self) -> list[Event]:
        """All events that are there, without waiting."""
        with self._ready:
            was_full, taken = self.full, list(self._events)
            self._events.clear()
        if was_full:
            self.wake()
        return taken

    def __next__(self) -> Event:
        with self._ready:
            while not self._events:
                if self.done or self.cancelled:
                    raise StopIteration
                self._ready.wait()
            was_full, event = self.full, self._events.popleft()
        if was_full:
            self.wake()
        return event

    def close(self) -> None:
        """Nobody reads on: the engine lets go of it before its next step."""
        with self._ready:
            self.cancelled = True
            self._ready.notify_all()
        self.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
