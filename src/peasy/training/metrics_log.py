"""Metrics log: one JSON line per event, truncated to the checkpoint on resume; recorder of all events of a run."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from peasy.atomic import write_atomic
from peasy.errors import ResourceUnavailable
from peasy.training.event import Event, Sampled, event_data
from peasy.training.sink import Sink, open_sink

METRICS_FILE, SAMPLES_FILE = "metrics.jsonl", "samples.jsonl"
E = TypeVar("E", bound=Event)


class MetricsLog:
    """Append-only JSON-lines file; `flush` makes the lines durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)

    def write(self, line: Mapping[str, object]) -> None:
        """Append one line in a single write: a kill leaves complete lines and at most one partial line at the end."""
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._with_error(lambda: self._file.write(data), len(data))

    def flush(self) -> None:
        """Flush to disk (fsync)."""
        self._with_error(lambda: os.fsync(self._file.fileno()), 0)

    def _with_error(self, action: Callable[[], object], needed: int) -> None:
        try:
            action()
        except OSError as error:
            disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            reason = f"the disk is full, {needed:,} bytes are needed" if disk_full else error.strerror or str(error)
            raise ResourceUnavailable(
                f"Cannot write {self.path}: {reason}.", hint="The checkpoints are untouched."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class MetricsRecorder:
    """Records every event of a run in its logs, opened at the restored step, and then passes it to the sinks."""

    def __init__(self, run: Path, step: int, sinks: Sequence[Sink | str] = ()) -> None:
        for name in (METRICS_FILE, SAMPLES_FILE):
            truncate_log(run / name, step)
        self._metrics, self._samples = MetricsLog(run / METRICS_FILE), MetricsLog(run / SAMPLES_FILE)
        self._sinks = [open_sink(sink, run) for sink in sinks]

    def record(self, event: E) -> E:
        """Record an event and return it."""
        (self._samples if isinstance(event, Sampled) else self._metrics).write(event_data(event))
        for sink in self._sinks:
            sink(event)
        return event

    def flush(self) -> None:
        """Flush the logs to disk."""
        self._metrics.flush()
        self._samples.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._metrics.__exit__()
        self._samples.__exit__()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a log."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue  # partial last line of a killed writer
        if isinstance(record, dict):
            yield record


def truncate_log(path: Path, step: int) -> None:
    """Delete the lines after `step`: the resumed run will write them again."""
    records = [record for record in read_log(path) if record.get("step", 0) <= step]
    write_atomic(path, "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))
