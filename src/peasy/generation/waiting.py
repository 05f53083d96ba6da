"""Requests that wait for their turn: first come, first served, and no more than the limits allow."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from peasy.generation.answer import Answer
from peasy.generation.limit import Limits
from peasy.generation.request import Overloaded, Reason


@dataclass(frozen=True, eq=False)
class Entry:
    """A request with what it will take: ids to begin with, tokens each choice may write, tokens and bytes in all."""

    answer: Answer
    prompt: tuple[int, ...]
    most: int
    tokens: int
    bytes: int


class Waiting:
    """The queue. A request that does not fit yet holds up those behind it, so that none waits for ever."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.tokens, self.closed = limits, 0, False
        self._entries: deque[Entry] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry, speed: float) -> None:
        """Wait in line, or be told when to come back; `speed` in tokens a second tells when that is."""
        with self._lock:
            if self.closed:
                raise Overloaded("The engine is closing and takes no more requests.", 1.0)
            over = self.tokens + entry.tokens - self.limits.queue_tokens
            if len(self._entries) >= self.limits.queue:
                over = max(over, self.tokens // len(self._entries))
            if over > 0 and self._entries:
                raise Overloaded(
                    f"{len(self._entries)} requests with {self.tokens:,} tokens are waiting already.",
                    max(1.0, over / speed if speed else 1.0),
                )
            self._entries.append(entry)
            self.tokens += entry.tokens

    def close(self) -> None:
        """Nobody else may come; those that are here stay in line."""
        with self._lock:
            self.closed = True

    def take(self, fits: Callable[[Entry], bool]) -> Entry | None:
        """The first in line, if it fits now."""
        with self._lock:
            if not self._entries or not fits(self._entries[0]):
                return None
            self.tokens -= self._entries[0].tokens
            return self._entries.popleft()

    def leave(self, over: Callable[[Answer], Reason | None]) -> list[tuple[Entry, Reason]]:
        """Those for whom waiting is over, with the reason; they are out of the line."""
        with self._lock:
            gone = [(entry, reason) for entry in self._entries if (reason := over(entry.answer)) is not None]
            for entry, _ in gone:
                self._entries.remove(entry)
                self.tokens -= entry.tokens
        return gone
