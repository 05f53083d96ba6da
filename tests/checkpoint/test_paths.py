"""Data directory, runs by name, newest undamaged checkpoint."""

import shutil
import sys
from pathlib import Path

import pytest

from peasy.checkpoint import paths
from peasy.errors import InvalidInput, NotFound, UsageError


def test_data_directory(tmp_path, monkeypatch):
    assert paths.data_dir() == tmp_path / "home"
    monkeypatch.delenv("PEASY_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert paths.data_dir() == tmp_path / "data" / "peasy"
    monkeypatch.setenv("PEASY_HOME", "~/mine")
    assert paths.data_dir() == Path.home() / "mine"
    for name in ("PEASY_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name)
    if sys.platform == "linux":
        assert paths.data_dir() == Path.home() / ".local" / "share" / "peasy"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200, "-flag", "a b"])
def test_invalid_run_names(name):
    with pytest.raises(UsageError, match="is not a valid name"):
        paths.run_path(name)


def test_runs_in_current_folder_take_precedence(tmp_path):
    for folder in (
        tmp_path / "runs" / "both",
        tmp_path / "home" / "runs" / "both",
        tmp_path / "home" / "runs" / "other",
    ):
        folder.mkdir(parents=True)
    (tmp_path / "runs" / ".both.part-1").mkdir()
    by_name = paths.find_runs()
    assert list(by_name) == ["both", "other"]
    assert by_name["both"].resolve() == tmp_path / "runs" / "both"


@pytest.fixture
def run(saved, tmp_path):
    for step in (2, 10, 9):
        shutil.copytree(saved, tmp_path / "run" / "checkpoints" / f"step-{step:06}")
    return tmp_path / "run"


def test_latest_is_the_highest_step(run):
    newest, skipped = paths.latest_checkpoint(run)
    assert (newest.name, skipped) == ("step-000010", [])


def test_one_checkpoint_of_a_run_by_its_step(run, tmp_path):
    steps = [str(int(folder.name.removeprefix("step-"))) for folder in paths.list_checkpoints(run)]
    target = tmp_path / "home" / "runs" / "mine"
    shutil.copytree(run, target)
    for step in steps:
        found = paths.resolve_model(f"mine@{step}")
        assert (found.kind, found.name) == ("run", f"mine@{step}")
        assert int(found.folder.name.removeprefix("step-")) == int(step)
    for step in ("77777", "", "../x", "latest"):
        with pytest.raises(NotFound, match="has no checkpoint of step") as caught:
            paths.resolve_model(f"mine@{step}")
        assert steps[0] in str(caught.value.hint)


def test_damaged_newest_checkpoint_is_skipped(run):
    (run / "checkpoints" / "step-000010" / "config.json").write_text("{}")
    newest, skipped = paths.latest_checkpoint(run)
    assert (newest.name, [path.name for path in skipped]) == ("step-000009", ["step-000010"])


def test_all_checkpoints_damaged_or_none(run, tmp_path):
    for folder in (run / "checkpoints").iterdir():
        (folder / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"All checkpoints of .* are damaged"):
        paths.resolve_model(run)
    (tmp_path / "new" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="no checkpoint yet"):
        paths.resolve_model(tmp_path / "new")
