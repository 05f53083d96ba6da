"""Response stream: bounded event queue between the engine and the reader of one request.

At most `max_pending_events` wait for a slow reader; then the request pauses: it keeps its decode state but is no longer
scheduled. If nothing was read for `slow_client_timeout` seconds, it ends with reason "slow_client" and its memory is
freed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from peasy.generation.request import Ended, Event, Request


class ResponseStream(Iterator[Event]):
    """Thread-safe event stream of one request: iteration blocks, `pop_all` does not, `close` cancels the request."""

    def __init__(
        self,
        request: Request,
        submitted_at: float,
        max_pending_events: int,
        wake_engine: Callable[[], None] = lambda: None,
    ) -> None:
        self.request, self.max_pending_events, self.wake_engine = request, max_pending_events, wake_engine
        self.submitted_at = submitted_at
        self.deadline = None if request.timeout is None else submitted_at + request.timeout
        self.paused_since: float | None = None
        self.num_cached_tokens = 0
        self.cancelled = False
        self.on_event: Callable[[], None] | None = None
        self.open_choices = set(range(request.n))
        self._events: deque[Event] = deque()
        self._ready = threading.Condition()

    @property
    def is_finished(self) -> bool:
        """True if every choice has ended; unread events may remain."""
        return not self.open_choices

    @property
    def is_full(self) -> bool:
        """True if the reader is so far behind that decoding pauses."""
        return len(self._events) >= self.max_pending_events

    def put(self, event: Event) -> None:
        """Append an event (engine side). The `on_event` callback, if set, runs in the engine's thread."""
        with self._ready:
            self._events.append(event)
            if isinstance(event, Ended):
                self.open_choices.discard(event.choice)
            self._ready.notify_all()
        if self.on_event is not None:
            self.on_event()

    def pop_all(self) -> list[Event]:
        """Remove and return all pending events without blocking."""
        with self._ready:
            was_full, events = self.is_full, list(self._events)
            self._events.clear()
        if was_full:
            self.wake_engine()
        return events

    def __next__(self) -> Event:
        with self._ready:
            while not self._events:
                if self.is_finished or self.cancelled:
                    raise StopIteration
                self._ready.wait()
            was_full, event = self.is_full, self._events.popleft()
        if was_full:
            self.wake_engine()
        return event

    def close(self) -> None:
        """Cancel the request; the engine drops it before its next step."""
        with self._ready:
            self.cancelled = True
            self._ready.notify_all()
        self.wake_engine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
