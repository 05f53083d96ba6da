"""Measuring side by side: candidates take turns in one run, so that a busy machine slows all of them alike."""

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
class Measured:
    """Seconds of one candidate, one number a round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The middle half: a quarter of the rounds was faster, a quarter slower."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high

    def over(self, other: "Measured") -> float:
        """How many times the other's time: the median over rounds, each round against its own neighbour."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True))

    def __str__(self) -> str:
        low, high = self.spread
        return f"{self.name:<16} {self.median * 1e3:9.2f} ms   middle half {low * 1e3:.2f} to {high * 1e3:.2f}"


class Peer:
    """A candidate in a process of its own: `Peer("package.module:function")`, called there on demand.

    For peers with other versions, threads or environment; `python` may be another interpreter.
    The child measures itself, so that the talk between processes is not counted.
    """

    def __init__(self, function: str, *, python: str = sys.executable, **environment: str) -> None:
        command = [python, "-m", "bench.measure", function]
        environment = os.environ | environment
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(self) -> float:
        """Seconds of one call, as the child measured them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer ended with {self.process.wait()}: {self.process.args}")
        return float(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def alternate(rounds: int = 15, warm_up: int = 2, **candidates: Callable[[], object]) -> dict[str, Measured]:
    """Run the candidates in turns, the order reversed every other round, and keep every round's seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warm_up + rounds):
        order = list(candidates)[:: 1 if number % 2 else -1]
        for name in order:
            took = timed(candidates[name])
            if number >= warm_up:
                seconds[name].append(took)
    return {name: Measured(name, tuple(took)) for name, took in seconds.items()}


def timed(candidate: Callable[[], object]) -> float:
    """Seconds of one call; a peer says its own."""
    if isinstance(candidate, Peer):
        return candidate()
    start = time.perf_counter()
    candidate()
    return time.perf_counter() - start


def machine() -> str:
    """Where the figures come from, in one line."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def _serve(function: str) -> None:
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    for _ in sys.stdin:
        print(timed(call), flush=True)


if __name__ == "__main__" and len(sys.argv) == 2:
    _serve(sys.argv[1])
