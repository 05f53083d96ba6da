"""Atomic writes of directories and files."""

import errno
import os
import stat

import pytest

from peasy import atomic
from peasy.atomic import atomic_dir, write_atomic
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable


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


@pytest.mark.parametrize("theirs", [[], ["theirs"]])
def test_a_concurrent_writer_is_not_overwritten(tmp_path, theirs):
    """Also its empty folder, which a rename would replace without an error."""

    def write():
        with atomic_dir(tmp_path / "run") as folder:
            (folder / "ours").touch()
            (tmp_path / "run").mkdir()
            for name in theirs:
                (tmp_path / "run" / name).touch()

    with pytest.raises(InvalidInput, match="never overwrites"):
        write()
    assert left(tmp_path) == ["run"]
    assert left(tmp_path / "run") == theirs


@pytest.mark.parametrize(("call", "code"), [("fsync", errno.ENOSPC), ("rename", errno.EIO), ("fsync", errno.EIO)])
def test_a_failing_disk_leaves_nothing_and_names_the_target(tmp_path, monkeypatch, call, code):
    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic.os, call, fail)
    with pytest.raises(ResourceUnavailable, match="run") as caught, atomic_dir(tmp_path / "run") as part:
        (part / "a").write_text("1")
    assert caught.value.exit_code == 6
    assert left(tmp_path) == []


def test_everything_is_synced_before_the_rename_and_the_parent_after(tmp_path, monkeypatch):
    done = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(atomic.os, "fsync", lambda fd: (done.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(atomic.os, "rename", lambda a, b: (done.append("rename"), rename(a, b)))
    with atomic_dir(tmp_path / "run") as part:
        for name in ("a", "b"):
            (part / name).write_text(name)
    where = done.index("rename")
    assert {os.path.basename(path) for path in done[:where]} >= {"a", "b"}
    assert done[where - 1].startswith(str(tmp_path / ".run.part-"))
    assert done[where + 1 :] == [str(tmp_path)]


def test_text_and_bytes_are_written_and_replaced(tmp_path):
    path = tmp_path / "a.md"
    assert write_atomic(path, "eins ✓") == path
    write_atomic(path, b"zwei")
    assert path.read_bytes() == b"zwei"
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_a_failed_write_leaves_the_old_file_unchanged(tmp_path, monkeypatch):
    path = tmp_path / "a.md"
    write_atomic(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResourceUnavailable, match="No space left on device"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_missing_folder_and_folder_as_target_are_errors(tmp_path):
    with pytest.raises(NotFound, match="There is no folder"):
        write_atomic(tmp_path / "no" / "a.md", "x")
    with pytest.raises(InvalidInput, match="is a folder"):
        write_atomic(tmp_path, "x")


def test_file_permissions(tmp_path):
    other = tmp_path / "other"
    other.write_text("x")
    assert stat.S_IMODE(write_atomic(tmp_path / "new", "x").stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    other.chmod(0o600)
    assert stat.S_IMODE(write_atomic(other, "y").stat().st_mode) == 0o600


def test_a_link_is_followed_not_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize(("code", "passes"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_folders_are_flushed_only_where_the_file_system_can(tmp_path, monkeypatch, code, passes):
    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    if passes:
        with atomic_dir(tmp_path / "run") as part:
            (part / "a").write_text("1")
        assert (tmp_path / "run" / "a").exists()
    else:
        with pytest.raises(ResourceUnavailable), atomic_dir(tmp_path / "run"):
            pass


def test_windows_flushes_files_open_for_writing(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(atomic.os, "name", "nt")
    monkeypatch.setattr(atomic.os, "open", lambda path, flags: opened.append(flags) or 9)
    monkeypatch.setattr(atomic.os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(atomic.os, "close", lambda descriptor: None)
    monkeypatch.setattr(atomic.Path, "is_dir", lambda self: False)
    atomic._fsync(tmp_path / "a")
    monkeypatch.setattr(atomic.Path, "is_dir", lambda self: True)
    atomic._fsync(tmp_path)
    assert opened == [os.O_RDWR]
