"""Learning-rate schedules and the budget of a run, in steps or minutes."""

import math
import time
from collections.abc import Callable
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from peasy.parameters import BoundedSettings

Clock = Callable[[], float]
_Fraction = Annotated[float, Ge(0), Le(1)]


class CosineSchedule(BoundedSettings):
    """Linear warmup, then cosine decay to `min_lr_ratio` of the peak learning rate."""

    kind: ClassVar[str] = "cosine"
    warmup: _Fraction = 0.02
    """Fraction of the run with linear warmup."""
    min_lr_ratio: _Fraction = 0.05
    """Learning rate at the end, as a fraction of the peak."""

    def lr_scale(self, progress: float) -> float:
        """Return the learning-rate multiplier when the fraction `progress` of the run is over."""
        if progress < self.warmup:
            return _warmup_scale(progress, self.warmup)
        decay_progress = (min(progress, 1.0) - self.warmup) / max(1 - self.warmup, 1e-9)
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * decay_progress))


class WSDSchedule(BoundedSettings):
    """Warmup-stable-decay (WSD) schedule: linear decay to `min_lr_ratio` over the last `decay` of the run."""

    kind: ClassVar[str] = "wsd"
    warmup: _Fraction = 0.02
    """Fraction of the run with linear warmup."""
    decay: _Fraction = 0.5
    """Fraction of the run, at its end, with linear decay."""
    min_lr_ratio: _Fraction = 0.0
    """Learning rate at the end, as a fraction of the peak."""

    def lr_scale(self, progress: float) -> float:
        """Return the learning-rate multiplier when the fraction `progress` of the run is over."""
        if progress < self.warmup:
            return _warmup_scale(progress, self.warmup)
        remaining = 1 - min(progress, 1.0)
        return 1.0 if remaining >= self.decay else self.min_lr_ratio + (1 - self.min_lr_ratio) * remaining / self.decay


Schedule = CosineSchedule | WSDSchedule

_MIN_WARMUP_SCALE = 0.01
"""Least multiplier, so that the first step of a warmup changes the weights."""


def _warmup_scale(progress: float, warmup: float) -> float:
    return max(progress / warmup, _MIN_WARMUP_SCALE)


class Budget:
    """Progress of a run, measured in steps or in wall-clock time.

    `spent` is the time used before an interruption: a resumed run ends when it would have ended.

    >>> Budget(steps=10).progress(5)
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
        assert (steps is None) != (minutes is None), "a recipe has one of them, and checks it"
        self.steps, self.seconds = steps, None if minutes is None else minutes * 60
        self._clock, self._start = clock, clock() - spent

    @property
    def elapsed(self) -> float:
        """Seconds so far, including the time before an interruption."""
        return self._clock() - self._start

    def progress(self, step: int) -> float:
        """Return the fraction of the run that is over after `step` steps."""
        if self.steps is not None:
            return step / self.steps
        assert self.seconds is not None
        return min(self.elapsed / self.seconds, 1.0)

    def seconds_left(self, step: int, seconds_per_step: float) -> float:
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
