"""Atomic file writes."""

import os
import stat

import pytest

from peasy.atomic_dir import write_atomic
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable


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
