"""Is an engine alive? Busy is alive, however long a step takes; frozen is not."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.generation.runner import Runner

BEAT = 4.0
"""Seconds without a heartbeat, and without work, after which an engine is taken for frozen."""

LONGEST = 120.0
"""Seconds after which one step is taken for frozen even if it works: it turns in circles."""


class Pulse:
    """Feels the pulse of an engine: its heartbeat, and between two beats the time its thread has on the processor.

    `feel` is to be called about once a second; a step that takes long is told from one that is stuck by what changed.
    """

    def __init__(self, runner: "Runner") -> None:
        self.runner, self._worked, self._at = runner, -1.0, time.monotonic()

    def feel(self) -> None:
        """Look whether it has worked since the last time."""
        if (worked := self._work()) > self._worked:
            self._worked, self._at = worked, time.monotonic()

    @property
    def alive(self) -> bool:
        """Does it live?"""
        age = self.runner.engine.clock() - self.runner.engine.heartbeat
        works = time.monotonic() - self._at < BEAT
        return self.runner.thread is not None and (age < BEAT or (works and age < LONGEST))

    def _work(self) -> float:
        """Time its thread had on the processor, in the system's ticks; where that is not told, of the whole process."""
        try:
            told = Path(f"/proc/self/task/{self.runner.thread}/stat").read_text()
        except OSError:
            return round(time.process_time(), 1)
        return sum(map(float, told.rpartition(")")[2].split()[11:13]))
