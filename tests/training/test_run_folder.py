"""Lock of a run folder."""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from filelock import FileLock

from peasy.errors import ResourceUnavailable
from peasy.training import parallel
from peasy.training.run_folder import RunLocked, is_locked, run_lock

HOLD = """
import sys, time
from pathlib import Path
from peasy.training.run_folder import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_process_is_rejected(tmp_path):
    with run_lock(tmp_path), pytest.raises(RunLocked, match="another process"), run_lock(tmp_path):
        pass


def test_lock_is_visible_from_outside(tmp_path):
    assert not is_locked(tmp_path)
    with run_lock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_released_lock_can_be_taken_again(tmp_path):
    files = set()
    for _ in range(3):
        with run_lock(tmp_path):
            files.add((tmp_path / ".lock").stat().st_ino)
        is_locked(tmp_path)
    assert (tmp_path / ".lock").stat().st_ino in files
    assert len(files) == 1, "a lock on a deleted file would hold back no other process"


def test_several_processes_train_under_one_lock(tmp_path):
    spec, group = SimpleNamespace(objective=None, run=tmp_path), SimpleNamespace(is_main=True)
    with run_lock(tmp_path), pytest.raises(RunLocked):
        next(parallel.train(spec, group))


def test_lock_of_killed_process_is_released(tmp_path):
    (tmp_path / ".lock").write_text("process 123456789012")  # of an earlier holder
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=rf"\(process {holder.pid}\)"), run_lock(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
    with run_lock(tmp_path):
        pass


def test_a_read_only_folder_is_an_error_that_says_so(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(FileLock, "acquire", refuse)
    with pytest.raises(ResourceUnavailable, match="cannot be written: Permission denied") as caught, run_lock(tmp_path):
        pass
    assert "copy the run" in caught.value.hint
    assert not is_locked(tmp_path)
