"""Metrics log: lines are complete or removed, and a resumed run rewrites what was lost; event sinks."""

import errno
import json

import pytest

from peasy.errors import InvalidInput, ResourceUnavailable
from peasy.training.metrics_log import MetricsLog, open_sink, read_log, truncate_log


def write(path, steps):
    with MetricsLog(path) as log:
        for step in steps:
            log.write({"event": "step", "step": step, "loss": 1 / 3})


def test_round_trip(tmp_path):
    write(tmp_path / "m.jsonl", [1, 2])
    write(tmp_path / "m.jsonl", [3])
    assert [line["step"] for line in read_log(tmp_path / "m.jsonl")] == [1, 2, 3]
    assert next(read_log(tmp_path / "m.jsonl"))["loss"] == 1 / 3  # to the bit


def test_partial_line_and_later_steps_are_removed(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [1, 2, 3])
    with path.open("ab") as file:
        file.write(b'{"event": "step", "st')
    truncate_log(path, 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]
    write(path, [3])
    assert [line["step"] for line in read_log(path)] == [1, 2, 3]


def test_without_truncation_a_partial_line_corrupts_the_next(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [1])
    with path.open("ab") as file:
        file.write(b'{"event": "st')
    write(path, [2])
    assert [line["step"] for line in read_log(path)] == [1]


def test_missing_log_is_empty(tmp_path):
    assert list(read_log(tmp_path / "none.jsonl")) == []
    truncate_log(tmp_path / "none.jsonl", 5)


def test_full_disk_is_reported(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path / "m.jsonl")

    class Full:
        def __init__(self, file):
            self.file, self.room = file, 5

        def write(self, data):
            """Take a part first, as a disk that becomes full."""
            if not self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            taken, self.room = self.file.write(bytes(data)[: self.room]), 0
            return taken

        def __getattr__(self, name):
            return getattr(self.file, name)

    log.write({"step": 0})
    monkeypatch.setattr(log, "_file", Full(log._file))
    with pytest.raises(ResourceUnavailable, match=r"m\.jsonl was not written .* 12 bytes are needed, .* are free"):
        log.write({"step": 1})
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 0}\n', "a part of the line was left"


def test_tensorboard_receives_curves(make_spec, finish):
    pytest.importorskip("tensorboard", reason="comes with the extra `tracking`")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    spec = make_spec(steps=4, sinks=["tensorboard"])
    finish(spec)
    events = EventAccumulator(str(spec.run / "tensorboard"))
    events.Reload()
    assert [point.step for point in events.Scalars("loss")] == [1, 2, 3, 4]
    assert [point.step for point in events.Scalars("validation loss")] == [2, 4]


def test_unknown_sink_is_rejected(tmp_path):
    with pytest.raises(InvalidInput, match='no sink "tensorbord"') as error:
        open_sink("tensorbord", tmp_path)
    assert error.value.hint == "Did you mean tensorboard?"
