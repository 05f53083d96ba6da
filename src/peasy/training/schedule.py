"""Schedules: how large a step is at each part of a run, and when the run is over; by steps or by the clock."""

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
    """Warm up for the first part of the run, then fall along a cosine to `floor` of the full rate."""

    kind: ClassVar[str] = "cosine"
    warm: float = 0.02
    floor: float = 0.05

    def __post_init__(self) -> None:
        _check_shares(self, "warm", "floor")

    def factor(self, done: float) -> float:
        """How much of the full rate to use when `done` of the run is over."""
        if done < self.warm:
            return _warming(done, self.warm)
        rest = (min(done, 1.0) - self.warm) / max(1 - self.warm, 1e-9)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * rest))


@dataclass(frozen=True)
class Stable:
    """Warm up, stay at the full rate, then fall in a straight line to `floor` over the last `decay` of the run."""

    kind: ClassVar[str] = "stable"
    warm: float = 0.02
    decay: float = 0.5
    floor: float = 0.0

    def __post_init__(self) -> None:
        _check_shares(self, "warm", "decay", "floor")

    def factor(self, done: float) -> float:
        """How much of the full rate to use when `done` of the run is over."""
        if done < self.warm:
            return _warming(done, self.warm)
        left = 1 - min(done, 1.0)
        return 1.0 if left >= self.decay else self.floor + (1 - self.floor) * left / self.decay


Schedule = Cosine | Stable

_LEAST = 0.01
"""Even the first step of a warm-up moves a little."""


def _warming(done: float, warm: float) -> float:
    return max(done / warm, _LEAST)


def _check_shares(settings: Cosine | Stable, *names: str) -> None:
    check(settings, **dict.fromkeys(names, 0))
    for name in names:
        if getattr(settings, name) > 1:
            raise InvalidInput(f"{name} is {getattr(settings, name)}.", hint=f"{name} is a share: at most 1.")


class Budget:
    """How much of a run is over: by its steps, or by the time it was given, whichever was asked for.

    Time that earlier parts of the run took is told by `spent`: a run that is continued ends when it would have ended.

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
            raise InvalidInput("A run is given steps or minutes.", hint="Give one of them.")
        if (steps is not None and steps < 1) or (minutes is not None and not minutes > 0):
            raise InvalidInput("A run needs at least one step, or some time.", hint="Give more steps or minutes.")
        self.steps, self.seconds = steps, None if minutes is None else minutes * 60
        self._clock, self._start = clock, clock() - spent

    @property
    def elapsed(self) -> float:
        """Seconds so far, those before an interruption included."""
        return self._clock() - self._start

    def done(self, step: int) -> float:
        """The share of the run that is over after `step` steps."""
        if self.steps is not None:
            return step / self.steps
        assert self.seconds is not None
        return min(self.elapsed / self.seconds, 1.0)

    def over(self, step: int) -> bool:
        """Whether nothing is left."""
        return self.done(step) >= 1.0

    def left(self, step: int, seconds_per_step: float) -> float:
        """How many seconds are left, as far as can be told."""
        if self.steps is not None:
            return (self.steps - step) * seconds_per_step
        assert self.seconds is not None
        return max(self.seconds - self.elapsed, 0.0)


def due(times: int, before: float, after: float) -> bool:
    """Whether one of `times` evenly spread moments of a run lies in the part just done; the end is one of them.

    >>> [due(2, step / 4, (step + 1) / 4) for step in range(4)]
    [False, True, False, True]
    """
    return times > 0 and math.floor(after * times + 1e-9) > math.floor(before * times + 1e-9)
