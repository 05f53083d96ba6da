"""Request queue (bounded, fair to short and to long requests) and the response stream of each request."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Self

from peasy.generation.limits import EngineLimits
from peasy.generation.request import Ended, Event, FinishReason, Overloaded, Request
from peasy.generation.sampling import SampledToken


class ResponseStream(Iterator[Event]):
    """Thread-safe event stream of one request: iteration blocks, `pop_all` does not, `close` cancels the request.

    At most `max_pending_events` wait for a slow reader; then the request pauses: it keeps its decode state but is no
    longer scheduled. If nothing was read for `slow_client_timeout` seconds, it ends with reason "slow_client".
    Admission sets the `prompt` as it is read, an estimate (new tokens per choice, all tokens, bytes of its states), and
    whether it `is_short`.
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
        self.is_short = True
        self.submitted_at = submitted_at
        self.deadline = None if request.timeout is None else submitted_at + request.timeout
        self.paused_since: float | None = None
        self.num_cached_tokens = self.num_drafted = self.num_accepted = 0
        self.cancelled = False
        self.on_event: Callable[[], None] | None = None
        self.sink: Callable[[Event], None] | None = None
        self.prompt_logprobs: list[SampledToken | None] = []
        self.open_choices = set(range(request.n))
        self._events: deque[Event] = deque()
        self._ready = threading.Condition()

    @property
    def is_finished(self) -> bool:
        """True if every choice has ended; unread events may remain."""
        return not self.open_choices

    @property
    def num_running(self) -> int:
        """Number of sequences that it holds while it runs."""
        return self.request.num_sequences if self.request.beam_search else len(self.open_choices)

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


_RESERVED_SHARE = 8
"""One part in so many of the batch and of the memory is kept for short requests."""

_MAX_WAIT_SECONDS = 10.0
"""Seconds after which a long request that waits comes first: short ones then start only in their reserved part."""


class RequestQueue:
    """Queue of two lanes, each first in, first out: short requests, and long ones, which leave a part of it free.

    So a short request never waits for a long one to end, and a long one not for an endless row of short ones.
    """

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

    def pop(self, running: Collection[ResponseStream], now: float) -> ResponseStream | None:
        """Remove and return the next request whose sequences and states fit beside the running ones, else None."""
        with self._lock:
            long_head = next((response for response in self._queue if not response.is_short), None)
            short_head = next((response for response in self._queue if response.is_short), None)
            overdue = long_head is not None and now - long_head.submitted_at > _MAX_WAIT_SECONDS
            heads = [head for head in (short_head, long_head) if head is not None]
            for head in sorted(heads, key=lambda response: response.submitted_at):
                same = [response for response in running if response.is_short == head.is_short]
                part = 1 - 1 / _RESERVED_SHARE if not head.is_short else 1 / _RESERVED_SHARE if overdue else 1.0
                if self._fits(head, running, 1.0) and (not same or self._fits(head, same, part)):
                    self._queue.remove(head)
                    self.tokens -= head.total_tokens
                    return head
        return None

    def _fits(self, response: ResponseStream, running: Collection[ResponseStream], part: float) -> bool:
        """True if a request and the running ones fit into a part of the engine."""
        seqs = sum(other.num_running for other in running) + response.request.num_sequences
        num_bytes = sum(other.state_bytes for other in running) + response.state_bytes
        max_bytes = self.limits.kv_cache_bytes
        return seqs <= part * self.limits.max_num_seqs and (max_bytes is None or num_bytes <= part * max_bytes)

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
