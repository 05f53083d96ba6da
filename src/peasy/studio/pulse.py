"""Watchdog: tells a long step from a hung engine thread."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peasy.generation.runner import Runner

BEAT = 4.0
"""Seconds without heartbeat and without CPU time after which an engine counts as hung."""

LONGEST = 120.0
"""Seconds after which one step counts as hung even if it uses CPU time: an endless loop."""


class Pulse:
    """Watchdog of one engine: its heartbeat and, between heartbeats, the CPU time of its thread.

    Call `feel` about once a second; a long step uses CPU time, a hung one does not.
    """

    def __init__(self, runner: "Runner") -> None:
        self.runner, self._worked, self._at = runner, -1.0, time.monotonic()

    def feel(self) -> None:
        """Record whether the thread has used CPU time since the last call."""
        if (cpu_time := self._work()) > self._worked:
            self._worked, self._at = cpu_time, time.monotonic()

    @property
    def alive(self) -> bool:
        """False if the engine thread is hung or has ended."""
        age = self.runner.engine.clock() - self.runner.engine.heartbeat
        progressing = time.monotonic() - self._at < BEAT
        return self.runner.thread is not None and (age < BEAT or (progressing and age < LONGEST))

    def _work(self) -> float:
        """Return the CPU time of the thread in clock ticks; without /proc, that of the process in seconds."""
        try:
            stat = Path(f"/proc/self/task/{self.runner.thread}/stat").read_text()
        except OSError:
            return round(time.process_time(), 1)
        return sum(map(float, stat.rpartition(")")[2].split()[11:13]))
