"""Learning-rate schedules and the budget of a run, in steps or minutes."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from peasy.errors import InvalidInput
from peasy.nn.part import check

Clock = Callable[[], float]


@dataclass(frozen=True)
class Cosine:
    """Linear warmup, then cosine decay to `min_lr_ratio` of the peak learning rate."""

    kind: ClassVar[str] = "cosine"
    warm: float = 0.02
    floor: float = 0.05

    def __post_init__(self) -> None:
        _check_shares(self, "warm", "floor")

    def factor(self, done: float) -> float:
        """Return the learning-rate multiplier when the fraction `done` of the run is over."""
        if done < self.warm:
            return _warming(done, self.warm)
        decay_progress = (min(done, 1.0) - self.warm) / max(1 - self.warm, 1e-9)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * decay_progress))


@dataclass(frozen=True)
class Stable:
    """Warmup-stable-decay (WSD) schedule: linear decay to `min_lr_ratio` over the last `decay` of the run."""

    kind: ClassVar[str] = "stable"
    warm: float = 0.02
    decay: float = 0.5
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_shares(self, "warm", "decay", "floor")

    def factor(self, done: float) -> float:
        """Return the learning-rate multiplier when the fraction `done` of the run is over."""
        if done < self.warm:
            return _warming(done, self.warm)
        remaining = 1 - min(done, 1.0)
        return 1.0 if remaining >= self.decay else self.floor + (1 - self.floor) * remaining / self.decay


Schedule = Cosine | Stable

_LEAST = 0.01
"""Least multiplier, so that the first step of a warmup changes the weights."""


def _warming(done: float, warm: float) -> float:
    return max(done / warm, _LEAST)


def _check_shares(settings: Cosine | Stable, *names: str) -> None:
    check(settings, **dict.fromkeys(names, 0))
    for name in names:
        if getattr(settings, name) > 1:
            raise InvalidInput(f"{name} is {getattr(settings, name)}.", hint=f"{name} is a fraction: at most 1.")


class Budget:
    """Progress of a run, measured in steps or in wall-clock time.

    `spent` is the time used before an interruption: a resumed run ends when it would have ended.

    >>> Budget(steps=10).done(5)
    0.5
    """

    def __init__(
        self,
        steps: int | None = None,
        minutes: float | None = None,
        *,
        spent: float = 0.0,
        clock: Clock = time.monotonic,
    ) -> None:
        if (steps is None) == (minutes is None):
            raise InvalidInput("A run needs a budget in steps or minutes.", hint="Set exactly one of them.")
        if (steps is not None and steps < 1) or (minutes is not None and not minutes > 0):
            raise InvalidInput(
                "The budget must be at least one step, or more than 0 minutes.", hint="Set steps or minutes."
            )
        self.steps, self.seconds = steps, None if minutes is None else minutes * 60
        self._clock, self._start = clock, clock() - spent

    @property
    def elapsed(self) -> float:
        """Seconds so far, including the time before an interruption."""
        return self._clock() - self._start

    def done(self, step: int) -> float:
        """Return the fraction of the run that is over after `step` steps."""
        if self.steps is not None:
            return step / self.steps
        assert self.seconds is not None
        return min(self.elapsed / self.seconds, 1.0)

    def over(self, step: int) -> bool:
        """Return whether the budget is used up."""
        return self.done(step) >= 1.0

    def left(self, step: int, seconds_per_step: float) -> float:
        """Return the estimated seconds left."""
        if self.steps is not None:
            return (self.steps - step) * seconds_per_step
        assert self.seconds is not None
        return max(self.seconds - self.elapsed, 0.0)


def due(times: int, before: float, after: float) -> bool:
    """Return whether one of `times` evenly spaced moments lies in the interval just passed; the end is one of them.

    >>> [due(2, step / 4, (step + 1) / 4) for step in range(4)]
    [False, True, False, True]
    """
    return times > 0 and math.floor(after * times + 1e-9) > math.floor(before * times + 1e-9)
