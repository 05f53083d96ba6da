"""Side-by-side timing: candidates alternate in one run, so that other load slows all of them alike."""

import importlib
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate, one number per round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """Interquartile range: a quarter of the rounds was faster, a quarter slower."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high

    def ratio_to(self, other: "Timing") -> float:
        """Return this time over the other's: the median of the ratios within each round."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True))

    def __str__(self) -> str:
        low, high = self.spread
        return f"{self.name:<16} {self.median * 1e3:9.2f} ms   interquartile {low * 1e3:.2f} to {high * 1e3:.2f}"


class Peer:
    """Candidate in its own process: `Peer("package.module:function")`, called there on demand.

    For peers with other versions, threads or environment; `python` may be another interpreter.
    The child measures itself, so that communication between processes is not counted.
    """

    def __init__(self, function: str, *, python: str = sys.executable, **environment: str) -> None:
        command = [python, "-m", "bench.measure", function]
        environment = os.environ | environment
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self) -> float:
        """Return the seconds of one call, as measured by the child."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with {self.process.wait()}: {self.process.args!r}")
        return float(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:  # the work is done: a machine under load takes long to unload torch
            self.process.kill()
            self.process.wait()


def alternate(rounds: int = 15, warm_up: int = 2, **candidates: Callable[[], object]) -> dict[str, Timing]:
    """Time the candidates alternately, in reverse order every other round; return the seconds of every round."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warm_up + rounds):
        order = list(candidates)[:: 1 if number % 2 else -1]
        for name in order:
            elapsed = time_call(candidates[name])
            if number >= warm_up:
                seconds[name].append(elapsed)
    return {name: Timing(name, tuple(values)) for name, values in seconds.items()}


def time_call(candidate: Callable[[], object]) -> float:
    """Return the seconds of one call; a peer measures its own."""
    if isinstance(candidate, Peer):
        return candidate()
    start = time.perf_counter()
    candidate()
    return time.perf_counter() - start


def machine() -> str:
    """Describe the machine in one line."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def _serve(function: str) -> None:
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    for _ in sys.stdin:
        print(time_call(call), flush=True)


if __name__ == "__main__" and len(sys.argv) == 2:
    _serve(sys.argv[1])
