"""The workshop: long work in a process of its own, one piece at a time, which can be watched, stopped and found again.

The work is a command line of peasy, the very one a person would type: what it prints is what the page is told. The
process is in a group of its own, so that Ctrl-C at the server reaches it once, as a request to save and end.
"""

import contextlib
import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Any

from peasy.errors import NotFound
from peasy.training.lock import Busy

PATIENCE = 30.0
"""Seconds that a piece of work has to save itself when the server ends."""


class Job:
    """One piece of work: `verb` and `about` say what it is, `runs` are the runs it makes, `last` is its newest step."""

    def __init__(self, verb: str, words: Sequence[str], about: str, runs: Sequence[str] = ()) -> None:
        self.id, self.verb, self.about, self.runs = secrets.token_hex(6), verb, about, list(runs)
        self.words, self.began = list(words), time.time()
        self.said: deque[str] = deque(maxlen=20)
        self.events, self.stopping = 0, False
        self.last: dict[str, Any] | None = None
        self.answer: dict[str, Any] | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peasy", verb, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._hear, self._listen)]
        for reader in self._readers:
            reader.start()

    def _hear(self) -> None:
        for line in _lines(self.process.stdout):
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict) and "event" in told:
                    self.events += 1
                    self.last = told if told["event"] == "step" else self.last
                elif isinstance(told, dict) and "ok" in told:
                    self.answer = told

    def _listen(self) -> None:
        for line in _lines(self.process.stderr):
            if line.strip():
                self.said.append(line.strip()[:300])

    @property
    def running(self) -> bool:
        """Does it still go on?"""
        return self.process.poll() is None or any(reader.is_alive() for reader in self._readers)

    @property
    def state(self) -> str:
        """running, stopping, done, stopped or failed."""
        if self.running:
            return "stopping" if self.stopping else "running"
        if self.process.returncode in (0, 8):  # 8: a check ran and found something, which is an answer too
            return "done"
        return "stopped" if self.stopping or self.process.returncode == 130 else "failed"

    def stop(self) -> None:
        """Ask it to save and end; asked again, it ends at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM if self.stopping else signal.SIGINT)
            self.stopping = True

    def data(self) -> dict[str, Any]:
        """What the page is told."""
        answer = self.answer or {}
        told: dict[str, Any] = {
            "id": self.id, "verb": self.verb, "about": self.about, "runs": self.runs, "state": self.state,
            "seconds": time.time() - self.began, "events": self.events, "last": self.last, "said": list(self.said),
            "command": " ".join(["peasy", self.verb, *self.words]), "result": answer.get("result"),
            "next": answer.get("next", []), "error": answer.get("error"),
        }  # fmt: skip
        if told["state"] == "failed" and told["error"] is None:
            told["error"] = {"code": "fault", "message": (self.said or ["It ended without a word."])[-1], "hint": None}
        return told

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within this time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None


class Workshop:
    """Room for one job. The newest one stays to be read when it is over."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self._lock = threading.Lock()

    def start(self, verb: str, words: Sequence[str], about: str, runs: Sequence[str] = ()) -> Job:
        """Begin; an error where something goes on already."""
        with self._lock:
            if self.job is not None and self.job.running:
                raise Busy(f"{self.job.about} goes on.", hint="Wait for it, or stop it on its page.")
            self.job = Job(verb, words, about, runs)
            return self.job

    def stop(self) -> Job:
        """Ask what goes on to save and end."""
        if self.job is None or not self.job.running:
            raise NotFound("Nothing goes on that could be stopped.")
        self.job.stop()
        return self.job

    def close(self) -> None:
        """The server ends: what goes on is saved."""
        if self.job is not None and self.job.running:
            self.job.stop()
            if not self.job.wait(PATIENCE):
                self.job.process.kill()


def _lines(stream: IO[str] | None) -> Iterator[str]:
    with contextlib.suppress(ValueError, OSError):  # the pipe may be closed under us
        yield from stream or ()
