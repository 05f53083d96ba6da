"""Atomic directory writes."""

import errno
import os

import pytest

from peasy import atomic_dir as atomic_dir_module
from peasy.atomic_dir import atomic_dir
from peasy.errors import InvalidInput, ResourceUnavailable


def left(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_target_appears_complete(tmp_path):
    with atomic_dir(tmp_path / "deep" / "run") as part:
        (part / "a").write_text("1")
        assert not (tmp_path / "deep" / "run").exists()
    assert (tmp_path / "deep" / "run" / "a").read_text() == "1"
    assert left(tmp_path / "deep") == ["run"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, InvalidInput("x")])
def test_nothing_is_left_after_an_error(tmp_path, error):
    def write():
        with atomic_dir(tmp_path / "run") as part:
            (part / "a").write_text("1")
            raise error

    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        write()
    assert left(tmp_path) == []


def test_never_overwrites(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(InvalidInput, match="never overwrites"), atomic_dir(tmp_path / "run"):
        pytest.fail("began to write")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(InvalidInput, match="never overwrites"), atomic_dir(tmp_path / "link"):
        pytest.fail("began to write")


def test_a_concurrent_writer_is_not_overwritten(tmp_path):
    def write():
        with atomic_dir(tmp_path / "run"):
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "theirs").touch()

    with pytest.raises(InvalidInput, match="never overwrites"):
        write()
    assert left(tmp_path) == ["run"]
    assert left(tmp_path / "run") == ["theirs"]


@pytest.mark.parametrize(("call", "code"), [("fsync", errno.ENOSPC), ("rename", errno.EIO), ("fsync", errno.EIO)])
def test_a_failing_disk_leaves_nothing_and_names_the_target(tmp_path, monkeypatch, call, code):
    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic_dir_module.os, call, fail)
    with pytest.raises(ResourceUnavailable, match="run") as caught, atomic_dir(tmp_path / "run") as part:
        (part / "a").write_text("1")
    assert caught.value.exit_code == 6
    assert left(tmp_path) == []


def test_everything_is_synced_before_the_rename_and_the_parent_after(tmp_path, monkeypatch):
    done = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        atomic_dir_module.os, "fsync", lambda fd: (done.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd))
    )
    monkeypatch.setattr(atomic_dir_module.os, "rename", lambda a, b: (done.append("rename"), rename(a, b)))
    with atomic_dir(tmp_path / "run") as part:
        for name in ("a", "b"):
            (part / name).write_text(name)
    where = done.index("rename")
    assert {os.path.basename(path) for path in done[:where]} >= {"a", "b"}
    assert done[where - 1].startswith(str(tmp_path / ".run.part-"))
    assert done[where + 1 :] == [str(tmp_path)]
