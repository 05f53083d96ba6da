"""Metrics log: one JSON line per event, truncated to the checkpoint on resume; recorder of all events of a run."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from peasy.atomic import append_durably, disk_errors, write_atomic
from peasy.config import JsonDict
from peasy.errors import lookup
from peasy.extras import require_extra
from peasy.training.event import Event, Finished, Sampled, Started, TrainStep, Validated, event_data

Sink = Callable[[Event], object]


class _TensorBoardSink:
    """TensorBoard writer of curves and samples, in the folder `tensorboard` of the run."""

    def __init__(self, run: Path) -> None:
        require_extra("tensorboard")
        self._folder = str(run / "tensorboard")
        self._writer: Any = None

    def __call__(self, event: Event) -> None:
        """Write one event; on resume, first purge the steps that will be written again."""
        with disk_errors(Path(self._folder), hint=_HINT):
            if isinstance(event, Started):
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(self._folder, purge_step=event.step + 1)
            assert self._writer is not None, "the first event is Started"
            if isinstance(event, TrainStep):
                for name in ("loss", "lr", "tokens_per_second"):
                    self._writer.add_scalar(name.replace("_", " "), getattr(event, name), event.step)
            elif isinstance(event, Validated):
                self._writer.add_scalar("validation loss", event.loss, event.step)
            elif isinstance(event, Sampled):
                for number, (prompt, text) in enumerate(zip(event.prompts, event.texts, strict=True)):
                    self._writer.add_text(f"sample {number}", f"{prompt}{text}", event.step)
            elif isinstance(event, Finished):
                self._writer.close()


_SINKS_BY_NAME: dict[str, Callable[[Path], Sink]] = {"tensorboard": _TensorBoardSink}
"""Sinks that a recipe can name."""


def open_sink(sink: str | Sink, run: Path) -> Sink:
    """Return the sink with this name, or the callable itself."""
    return lookup(sink, _SINKS_BY_NAME, "sink")(run) if isinstance(sink, str) else sink


_HINT = "The checkpoints are untouched. Free some space, then continue the run with --resume."
METRICS_FILE, SAMPLES_FILE = "metrics.jsonl", "samples.jsonl"
E = TypeVar("E", bound=Event)


class MetricsLog:
    """Append-only JSON-lines file; `flush` makes the lines durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            self._file = path.open("ab", buffering=0)

    def write(self, line: Mapping[str, object]) -> None:
        """Append one line in a single write: a kill leaves complete lines and at most one partial line at the end."""
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        append_durably(self._file, self.path, data, _HINT)

    def flush(self) -> None:
        """Flush to disk (fsync)."""
        with disk_errors(self.path, hint=_HINT):
            os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class MetricsRecorder:
    """Records every event of a run in its logs, opened at the restored step, and then passes it to the sinks."""

    def __init__(self, run: Path | None, step: int = 0, sinks: Sequence[Sink | str] = ()) -> None:
        """Open the logs of a run; without a run, in a process that writes nothing, nothing is recorded."""
        self._logs: dict[str, MetricsLog] = {}
        self._sinks: list[Sink] = []
        if run is not None:
            for name in (METRICS_FILE, SAMPLES_FILE):
                truncate_log(run / name, step)
                self._logs[name] = MetricsLog(run / name)
            self._sinks = [open_sink(sink, run) for sink in sinks]

    def record(self, event: E) -> E:
        """Record an event and return it."""
        if self._logs:
            self._logs[SAMPLES_FILE if isinstance(event, Sampled) else METRICS_FILE].write(event_data(event))
        for sink in self._sinks:
            sink(event)
        return event

    def flush(self) -> None:
        """Flush the logs to disk."""
        for log in self._logs.values():
            log.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for log in self._logs.values():
            log.__exit__()


def read_log(path: Path) -> Iterator[JsonDict]:
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
