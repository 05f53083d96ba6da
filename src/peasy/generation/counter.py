"""Engine statistics: request, token and step counters since the start."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_SMOOTH = 0.9
"""Decay of the exponential moving average of the speed, per step."""


@dataclass
class Counters:
    """Counters since the engine started; `snapshot` returns them as plain data."""

    submitted: int = 0
    refused: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    reused_tokens: int = 0
    written_tokens: int = 0
    prefix_hits: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    longest_step: float = 0.0
    speed: float = 0.0
    """Moving average of tokens processed per second."""

    def stepped(self, tokens: int, seconds: float) -> None:
        """Record one step that processed this many tokens."""
        self.steps += 1
        self.step_seconds += seconds
        self.longest_step = max(self.longest_step, seconds)
        current = tokens / max(seconds, 1e-6)
        self.speed = current if not self.speed else _SMOOTH * self.speed + (1 - _SMOOTH) * current

    def snapshot(self) -> dict[str, Any]:
        """Return all counters as plain data."""
        return vars(self) | {"ended": dict(self.ended)}
