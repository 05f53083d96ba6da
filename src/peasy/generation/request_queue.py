"""Request queue (first in, first out, bounded by requests and tokens) and the response stream of each request."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from peasy.generation.limits import EngineLimits
from peasy.generation.request import Ended, Event, FinishReason, Overloaded, Request


class ResponseStream(Iterator[Event]):
    """Thread-safe event stream of one request: iteration blocks, `pop_all` does not, `close` cancels the request.

    At most `max_pending_events` wait for a slow reader; then the request pauses: it keeps its decode state but is no
    longer scheduled. If nothing was read for `slow_client_timeout` seconds, it ends with reason "slow_client".
    Admission sets the `prompt` as it is read, and an estimate: new tokens per choice, all tokens, bytes of its states.
    """

    def __init__(
        self,
        request: Request,
        submitted_at: float,
        max_pending_events: int,
        wake_engine: Callable[[], None] = lambda: None,
    ) -> None:
        self.request, self.max_pending_events, self.wake_engine = request, max_pending_events, wake_engine
        self.prompt, self.max_new_tokens, self.total_tokens, self.state_bytes = request.prompt, 0, 0, 0
        self.submitted_at = submitted_at
        self.deadline = None if request.timeout is None else submitted_at + request.timeout
        self.paused_since: float | None = None
        self.num_cached_tokens = self.num_drafted = self.num_accepted = 0
        self.cancelled = False
        self.on_event: Callable[[], None] | None = None
        self.sink: Callable[[Event], None] | None = None
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
        """Append an event (engine side). The `on_event` callback, if set, runs in the engine's thread.

        A `sink`, if set, takes the event at once: for a reader that drives the engine itself.
        """
        if self.sink is not None:
            if isinstance(event, Ended):
                self.open_choices.discard(event.choice)
            self.sink(event)
            return
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


class RequestQueue:
    """FIFO queue; a request that does not fit yet blocks those behind it, so that none starves."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits, self.tokens, self.closed = limits, 0, False
        self._queue: deque[ResponseStream] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, response: ResponseStream, tokens_per_second: float) -> None:
        """Enqueue, or raise Overloaded with retry_after estimated from the speed (tokens/s)."""
        with self._lock:
            if self.closed:
                raise Overloaded("The engine is closing and takes no more requests.", 1.0)
            excess = self.tokens + response.total_tokens - self.limits.max_queued_tokens
            if len(self._queue) >= self.limits.max_queued_requests:
                excess = max(excess, self.tokens // len(self._queue))
            if excess > 0 and self._queue:
                raise Overloaded(
                    f"The queue is full: {len(self._queue)} requests with {self.tokens:,} tokens.",
                    max(1.0, excess / tokens_per_second if tokens_per_second else 1.0),
                )
            self._queue.append(response)
            self.tokens += response.total_tokens

    def close(self) -> None:
        """Accept no more requests; queued ones stay."""
        with self._lock:
            self.closed = True

    def pop(self, free_seqs: int, free_bytes: float) -> ResponseStream | None:
        """Remove and return the first request if its sequences and their states fit, else None."""
        with self._lock:
            first = self._queue[0] if self._queue else None
            if first is None or first.request.num_sequences > free_seqs or first.state_bytes > free_bytes:
                return None
            self.tokens -= first.total_tokens
            return self._queue.popleft()

    def expire(
        self, stop_reason: Callable[[ResponseStream], FinishReason | None]
    ) -> list[tuple[ResponseStream, FinishReason]]:
        """Remove and return cancelled or expired requests with their reasons."""
        with self._lock:
            removed = [(one, reason) for one in self._queue if (reason := stop_reason(one)) is not None]
            for response, _ in removed:
                self._queue.remove(response)
                self.tokens -= response.total_tokens
        return removed
