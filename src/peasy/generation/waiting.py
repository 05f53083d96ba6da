"""Request queue: first in, first out, bounded by requests and tokens."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from peasy.generation.answer import Answer
from peasy.generation.limit import Limits
from peasy.generation.request import Overloaded, Reason


@dataclass(frozen=True, eq=False)
class Entry:
    """Queued request with its resource estimate: prompt ids, new tokens per choice, total tokens and state bytes."""

    answer: Answer
    prompt: tuple[int, ...]
    most: int
    tokens: int
    bytes: int


class Waiting:
    """FIFO queue; a request that does not fit yet blocks those behind it, so that none starves."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.tokens, self.closed = limits, 0, False
        self._entries: deque[Entry] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry, speed: float) -> None:
        """Enqueue, or raise Overloaded with retry_after estimated from the speed (tokens/s)."""
        with self._lock:
            if self.closed:
                raise Overloaded("The engine is closing and takes no more requests.", 1.0)
            excess = self.tokens + entry.tokens - self.limits.queue_tokens
            if len(self._entries) >= self.limits.queue:
                excess = max(excess, self.tokens // len(self._entries))
            if excess > 0 and self._entries:
                raise Overloaded(
                    f"The queue is full: {len(self._entries)} requests with {self.tokens:,} tokens.",
                    max(1.0, excess / speed if speed else 1.0),
                )
            self._entries.append(entry)
            self.tokens += entry.tokens

    def close(self) -> None:
        """Accept no more requests; queued ones stay."""
        with self._lock:
            self.closed = True

    def take(self, fits: Callable[[Entry], bool]) -> Entry | None:
        """Remove and return the first request if it fits, else None."""
        with self._lock:
            if not self._entries or not fits(self._entries[0]):
                return None
            self.tokens -= self._entries[0].tokens
            return self._entries.popleft()

    def leave(self, over: Callable[[Answer], Reason | None]) -> list[tuple[Entry, Reason]]:
        """Remove and return cancelled or expired requests with their reasons."""
        with self._lock:
            removed = [(queued, reason) for queued in self._entries if (reason := over(queued.answer)) is not None]
            for queued, _ in removed:
                self._entries.remove(queued)
                self.tokens -= queued.tokens
        return removed
