"""What the engine has done so far, in numbers."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_SMOOTH = 0.9
"""How much of the past stays in the running speed at each step."""


@dataclass
class Counters:
    """Sums since the start; `snapshot` gives them as plain data, for a page or a meter."""

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
    """Tokens read in a second, of late."""

    def stepped(self, tokens: int, seconds: float) -> None:
        """One more step, which read so many tokens."""
        self.steps += 1
        self.step_seconds += seconds
        self.longest_step = max(self.longest_step, seconds)
        now = tokens / max(seconds, 1e-6)
        self.speed = now if not self.speed else _SMOOTH * self.speed + (1 - _SMOOTH) * now

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data."""
        return vars(self) | {"ended": dict(self.ended)}
