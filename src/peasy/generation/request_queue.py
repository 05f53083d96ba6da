"""Request queue: first in, first out, bounded by requests and tokens."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from peasy.generation.limits import EngineLimits
from peasy.generation.request import FinishReason, Overloaded
from peasy.generation.response_stream import ResponseStream


@dataclass(frozen=True, eq=False)
class QueuedRequest:
    """Queued request with its resource estimate: prompt ids, new tokens per choice, total tokens and state bytes."""

    response: ResponseStream
    prompt: tuple[int, ...]
    max_new_tokens: int
    total_tokens: int
    state_bytes: int


class RequestQueue:
    """FIFO queue; a request that does not fit yet blocks those behind it, so that none starves."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits, self.tokens, self.closed = limits, 0, False
        self._queue: deque[QueuedRequest] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, queued: QueuedRequest, tokens_per_second: float) -> None:
        """Enqueue, or raise Overloaded with retry_after estimated from the speed (tokens/s)."""
        with self._lock:
            if self.closed:
                raise Overloaded("The engine is closing and takes no more requests.", 1.0)
            excess = self.tokens + queued.total_tokens - self.limits.max_queued_tokens
            if len(self._queue) >= self.limits.max_queued_requests:
                excess = max(excess, self.tokens // len(self._queue))
            if excess > 0 and self._queue:
                raise Overloaded(
                    f"The queue is full: {len(self._queue)} requests with {self.tokens:,} tokens.",
                    max(1.0, excess / tokens_per_second if tokens_per_second else 1.0),
                )
            self._queue.append(queued)
            self.tokens += queued.total_tokens

    def close(self) -> None:
        """Accept no more requests; queued ones stay."""
        with self._lock:
            self.closed = True

    def pop(self, fits: Callable[[QueuedRequest], bool]) -> QueuedRequest | None:
        """Remove and return the first request if it fits, else None."""
        with self._lock:
            if not self._queue or not fits(self._queue[0]):
                return None
            self.tokens -= self._queue[0].total_tokens
            return self._queue.popleft()

    def expire(
        self, stop_reason: Callable[[ResponseStream], FinishReason | None]
    ) -> list[tuple[QueuedRequest, FinishReason]]:
        """Remove and return cancelled or expired requests with their reasons."""
        with self._lock:
            removed = [
                (queued, reason) for queued in self._queue if (reason := stop_reason(queued.response)) is not None
            ]
            for queued, _ in removed:
                self._queue.remove(queued)
                self.tokens -= queued.total_tokens
        return removed
