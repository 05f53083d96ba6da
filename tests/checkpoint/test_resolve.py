import shutil
import warnings

import pytest

from peasy.checkpoint import resolve as room
from peasy.checkpoint.resolve import resolve
from peasy.errors import NeedsNetwork, NotFound, UsageError


@pytest.fixture
def run(saved, tmp_path):
    def make(name):
        return shutil.copytree(saved, tmp_path / "home" / "runs" / name)

    return make


def test_the_order_of_the_house(tmp_path, run, put, monkeypatch):
    """Path, exact run, built-in, beginning of a run, cache: each found only when those before it are not."""
    monkeypatch.setattr(room, "built_in", lambda: {"gpt2": tmp_path / "ready"})
    cached = put("gpt2")
    longer, exact = run("gpt2-mine"), run("gpt2")
    local = shutil.copytree(exact, tmp_path / "gpt2")
    assert resolve("gpt2").kind == "path"
    shutil.rmtree(local)
    assert (resolve("gpt2").kind, resolve("gpt2").folder) == ("run", exact)
    shutil.rmtree(exact)
    assert resolve("gpt2").kind == "built-in"
    monkeypatch.setattr(room, "built_in", dict)
    assert (resolve("gpt2").name, resolve("gpt2").folder) == ("gpt2-mine", longer)
    shutil.rmtree(longer)
    assert (resolve("gpt2").kind, resolve("gpt2").folder) == ("hub", cached)


def test_a_beginning_must_be_unique(run):
    run("quiet-fox")
    run("quick-fox")
    assert resolve("quie").name == "quiet-fox"
    with pytest.raises(NotFound, match="could be quick-fox, quiet-fox"):
        resolve("qui")


def test_a_typo_is_answered(run):
    run("quiet-fox")
    with pytest.raises(NotFound, match='No model "quite-fox"') as caught:
        resolve("quite-fox")
    assert caught.value.hint == "Did you mean quiet-fox? See all: peasy models"


@pytest.mark.parametrize("path", ["./nope", "/nope/at/all", "nope.json", "~/nope"])
def test_paths_are_taken_as_paths(path):
    with pytest.raises(NotFound, match="nothing at"):
        resolve(path)


def test_nothing_named():
    with pytest.raises(UsageError, match="No model was named"):
        resolve(" ")


def test_nothing_is_fetched_without_a_yes(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(room.hub, "_size", lambda id: 5)
    monkeypatch.setattr(room.hub, "_download", lambda id: pytest.fail("downloaded"))
    with pytest.raises(UsageError, match="Nobody was there"):
        resolve("me/model")
    with pytest.raises(NeedsNetwork):
        resolve("me/model", offline=True)


def test_a_word_without_a_slash_never_goes_online(monkeypatch):
    monkeypatch.setattr(room.hub, "fetch", lambda *a, **k: pytest.fail("went online"))
    with pytest.raises(NotFound):
        resolve("storms")


def test_a_run_is_its_newest_whole_checkpoint(saved, tmp_path):
    for step in (1, 2):
        shutil.copytree(saved, tmp_path / "runs" / "fox" / "checkpoints" / f"step-{step}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve("fox").folder.name == "step-2"
    (tmp_path / "runs" / "fox" / "checkpoints" / "step-2" / "config.json").write_text("{}")
    with pytest.warns(UserWarning, match="step-2 is damaged; step-1 is used instead") as said:
        assert resolve("fox").folder.name == "step-1"
    assert len(said) == 1


def test_a_folder_that_is_no_model_does_not_hide_a_run(run, tmp_path):
    run("stories")
    (tmp_path / "stories").mkdir()
    assert resolve("stories").kind == "run"
    assert resolve("./stories").kind == "path"
    (tmp_path / "stories" / "config.json").touch()
    assert resolve("stories").kind == "path"
    (tmp_path / "poems").mkdir()
    assert resolve("poems").kind == "path"  # nothing else has this name: whoever opens it says what is missing
