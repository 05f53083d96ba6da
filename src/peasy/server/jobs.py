"""Background jobs: one peasy command at a time in a subprocess, with progress, stop and last result.

A job is a peasy command line; its --json output is what the page shows. The subprocess has its own process group, so
that Ctrl-C at the server reaches it once, as a request to save and stop.
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
from typing import IO

from peasy.config import JsonDict
from peasy.errors import NotFound
from peasy.training.run_folder import RunLocked

_INTERRUPT, _PROCESS_GROUP = signal.SIGINT, 0
if sys.platform == "win32":
    # there a signal reaches only a process group, and only as CTRL_BREAK
    _INTERRUPT, _PROCESS_GROUP = signal.CTRL_BREAK_EVENT, subprocess.CREATE_NEW_PROCESS_GROUP
_SHUTDOWN_TIMEOUT = 30.0
"""Seconds that a job has to save and stop when the server shuts down."""


class Job:
    """One subprocess: a peasy command, the runs that it creates, its newest training step and its output."""

    def __init__(self, command: str, arguments: Sequence[str], description: str, run_names: Sequence[str] = ()) -> None:
        self.id, self.command, self.description = secrets.token_hex(6), command, description
        self.run_names = list(run_names)
        self.arguments, self.start_time = list(arguments), time.time()
        self.stderr_lines: deque[str] = deque(maxlen=20)
        self.num_events, self.stopping = 0, False
        self.last_step: JsonDict | None = None
        self.output: JsonDict | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peasy", command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace", start_new_session=True,
            creationflags=_PROCESS_GROUP,
        )  # fmt: skip
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_stdout, self._read_stderr)]
        for reader in self._readers:
            reader.start()

    def _read_stdout(self) -> None:
        for line in _read_lines(self.process.stdout):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and "event" in record:
                    self.num_events += 1
                    self.last_step = record if record["event"] == "step" else self.last_step
                elif isinstance(record, dict) and "ok" in record:
                    self.output = record

    def _read_stderr(self) -> None:
        for line in _read_lines(self.process.stderr):
            if line.strip():
                self.stderr_lines.append(line.strip()[:300])

    @property
    def running(self) -> bool:
        """True until the process has ended and its output is read."""
        return self.process.poll() is None or any(reader.is_alive() for reader in self._readers)

    @property
    def state(self) -> str:
        """State: running, stopping, done, stopped or failed."""
        if self.running:
            return "stopping" if self.stopping else "running"
        if self.process.returncode in (0, 8):  # 8: a check ran and reported mistakes
            return "done"
        return "stopped" if self.stopping or self.process.returncode == 130 else "failed"

    def stop(self) -> None:
        """Request it to save and stop; a second call terminates it at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM if self.stopping else _INTERRUPT)
            self.stopping = True

    def data(self) -> JsonDict:
        """Return the job as JSON data for the page."""
        output = self.output or {}
        data: JsonDict = {
            "id": self.id, "command": self.command, "command_line": " ".join(["peasy", self.command, *self.arguments]),
            "description": self.description, "runs": self.run_names, "state": self.state,
            "seconds": time.time() - self.start_time, "events": self.num_events, "last_step": self.last_step,
            "log": list(self.stderr_lines), "result": output.get("result"), "next": output.get("next", []),
            "error": output.get("error"),
        }  # fmt: skip
        if data["state"] == "failed" and data["error"] is None:
            message = (self.stderr_lines or ["The process ended without output."])[-1]
            data["error"] = {"code": "internal-error", "message": message, "hint": None}
        return data

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return whether the process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None


class JobRunner:
    """Runs one job at a time and keeps the last one's result."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self._lock = threading.Lock()

    def start(self, command: str, arguments: Sequence[str], description: str, run_names: Sequence[str] = ()) -> Job:
        """Start a job; raise if one is already running."""
        with self._lock:
            if self.job is not None and self.job.running:
                message = f"A job is already running: {self.job.description}."
                raise RunLocked(message, hint="Wait, or stop it on its page.")
            self.job = Job(command, arguments, description, run_names)
            return self.job

    def stop(self) -> Job:
        """Request the running job to save and stop."""
        if self.job is None or not self.job.running:
            raise NotFound("No job is running.")
        self.job.stop()
        return self.job

    def close(self) -> None:
        """Stop the running job at server shutdown; kill it if it does not save in time."""
        if self.job is not None and self.job.running:
            self.job.stop()
            if not self.job.wait(_SHUTDOWN_TIMEOUT):
                self.job.process.kill()


def _read_lines(stream: IO[str] | None) -> Iterator[str]:
    with contextlib.suppress(ValueError, OSError):  # the pipe may be closed under us
        yield from stream or ()
