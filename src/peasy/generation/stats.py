"""Engine statistics: request, token and step counters since the start."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_EMA_DECAY = 0.9
"""Decay of the exponential moving average of the speed, per step."""


@dataclass
class EngineStats:
    """Counters since the engine started; `snapshot` returns them as plain data."""

    submitted: int = 0
    refused: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    prefix_cache_hit_tokens: int = 0
    generated_tokens: int = 0
    prefix_hits: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    longest_step: float = 0.0
    tokens_per_second: float = 0.0
    """Moving average of tokens processed per second."""

    def record_step(self, tokens: int, seconds: float) -> None:
        """Record one step that processed this many tokens."""
        self.steps += 1
        self.step_seconds += seconds
        self.longest_step = max(self.longest_step, seconds)
        current = tokens / max(seconds, 1e-6)
        self.tokens_per_second = (
            current if not self.tokens_per_second else _EMA_DECAY * self.tokens_per_second + (1 - _EMA_DECAY) * current
        )

    def snapshot(self) -> dict[str, Any]:
        """Return all counters as plain data."""
        return vars(self) | {"finished": dict(self.finished)}
