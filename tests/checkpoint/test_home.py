import shutil

import pytest

from peasy.checkpoint import home
from peasy.errors import InvalidInput, UsageError


def test_home_is_where_the_person_says(tmp_path, monkeypatch):
    assert home.home() == tmp_path / "home"
    monkeypatch.delenv("PEASY_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(home.sys, "platform", "linux")
    assert home.home() == tmp_path / "data" / "peasy"
    monkeypatch.setattr(home.sys, "platform", "darwin")
    assert home.home().parts[-2:] == ("Application Support", "peasy")
    monkeypatch.setattr(home.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert home.home() == tmp_path / "local" / "peasy"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200, "-flag", "a b"])
def test_names_that_are_no_names(name):
    with pytest.raises(UsageError, match="is not a name"):
        home.place_for(name)


def test_runs_of_this_folder_come_before_those_at_home(tmp_path):
    for place in (
        tmp_path / "runs" / "both",
        tmp_path / "home" / "runs" / "both",
        tmp_path / "home" / "runs" / "other",
    ):
        place.mkdir(parents=True)
    (tmp_path / "runs" / ".both.part-1").mkdir()
    found = home.runs()
    assert list(found) == ["both", "other"]
    assert found["both"].resolve() == tmp_path / "runs" / "both"


@pytest.fixture
def run(saved, tmp_path):
    for step in (2, 10, 9):
        shutil.copytree(saved, tmp_path / "run" / "checkpoints" / f"step-{step:06}")
    return tmp_path / "run"


def test_latest_is_the_highest_step(run):
    newest, passed = home.latest(run)
    assert (newest.name, passed) == ("step-000010", [])


def test_a_damaged_newest_is_passed_over(run):
    (run / "checkpoints" / "step-000010" / "config.json").write_text("{}")
    newest, passed = home.latest(run)
    assert (newest.name, [each.name for each in passed]) == ("step-000009", ["step-000010"])


def test_no_whole_checkpoint_at_all(run, tmp_path):
    for folder in (run / "checkpoints").iterdir():
        (folder / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"No checkpoint of .* is whole"):
        home.latest(run)
    (tmp_path / "new").mkdir()
    with pytest.raises(InvalidInput, match="no checkpoint yet"):
        home.latest(tmp_path / "new")
