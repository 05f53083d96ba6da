"""Metrics log: lines are complete or removed, and a resumed run rewrites what was lost."""

import errno
import json

import pytest

from peasy.errors import NoRoom
from peasy.training.journal import Journal, read, trim


def write(path, steps):
    with Journal(path) as journal:
        for step in steps:
            journal.write({"event": "step", "step": step, "loss": 1 / 3})


def test_round_trip(tmp_path):
    write(tmp_path / "m.jsonl", [1, 2])
    write(tmp_path / "m.jsonl", [3])
    assert [line["step"] for line in read(tmp_path / "m.jsonl")] == [1, 2, 3]
    assert next(read(tmp_path / "m.jsonl"))["loss"] == 1 / 3  # to the bit


def test_partial_line_and_later_steps_are_removed(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [1, 2, 3])
    with path.open("ab") as file:
        file.write(b'{"event": "step", "st')
    trim(path, 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]
    write(path, [3])
    assert [line["step"] for line in read(path)] == [1, 2, 3]


def test_without_truncation_a_partial_line_corrupts_the_next(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [1])
    with path.open("ab") as file:
        file.write(b'{"event": "st')
    write(path, [2])
    assert [line["step"] for line in read(path)] == [1]


def test_missing_log_is_empty(tmp_path):
    assert list(read(tmp_path / "none.jsonl")) == []
    trim(tmp_path / "none.jsonl", 5)


def test_full_disk_is_reported(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "m.jsonl")

    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journal, "_file", Full())
    with pytest.raises(NoRoom, match=r"Cannot write .*m\.jsonl: the disk is full, 12 bytes are needed"):
        journal.write({"step": 1})
