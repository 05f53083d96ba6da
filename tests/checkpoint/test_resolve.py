"""Resolution order of MODEL names, prefixes, typos and downloads."""

import shutil
import warnings

import pytest

from peasy.checkpoint import paths as resolve_module
from peasy.checkpoint.paths import resolve_model
from peasy.errors import NeedsNetwork, NotFound, UsageError


@pytest.fixture
def run(saved, tmp_path):
    def make(name):
        return shutil.copytree(saved, tmp_path / "home" / "runs" / name)

    return make


def test_resolution_order(tmp_path, run, cache_model, monkeypatch):
    """Path, exact run, built-in, prefix of a run, hub cache: each only if none before it matches."""
    monkeypatch.setattr(resolve_module, "built_in_models", lambda: {"gpt2": tmp_path / "built-in"})
    cached = cache_model("gpt2")
    longer, exact = run("gpt2-mine"), run("gpt2")
    local = shutil.copytree(exact, tmp_path / "gpt2")
    assert resolve_model("gpt2").kind == "path"
    shutil.rmtree(local)
    assert (resolve_model("gpt2").kind, resolve_model("gpt2").folder) == ("run", exact)
    shutil.rmtree(exact)
    assert resolve_model("gpt2").kind == "built-in"
    monkeypatch.setattr(resolve_module, "built_in_models", dict)
    assert (resolve_model("gpt2").name, resolve_model("gpt2").folder) == ("gpt2-mine", longer)
    shutil.rmtree(longer)
    assert (resolve_model("gpt2").kind, resolve_model("gpt2").folder) == ("hub", cached)


def test_prefix_must_be_unique(run):
    run("quiet-fox")
    run("quick-fox")
    assert resolve_model("quie").name == "quiet-fox"
    with pytest.raises(NotFound, match="is ambiguous: quick-fox, quiet-fox"):
        resolve_model("qui")


def test_typo_gets_a_suggestion(run):
    run("quiet-fox")
    with pytest.raises(NotFound, match='No model "quite-fox"') as caught:
        resolve_model("quite-fox")
    assert caught.value.hint == "Did you mean quiet-fox? See all: peasy models"


@pytest.mark.parametrize("path", ["./nope", "/nope/at/all", "nope.json", "~/nope"])
def test_missing_paths(path):
    with pytest.raises(NotFound, match="does not exist"):
        resolve_model(path)


def test_empty_name():
    with pytest.raises(UsageError, match="No model was given"):
        resolve_model(" ")


def test_download_needs_confirmation(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(resolve_module.hub, "_download_size", lambda id: 5)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: pytest.fail("downloaded"))
    with pytest.raises(UsageError, match="needs confirmation"):
        resolve_model("me/model")
    with pytest.raises(NeedsNetwork):
        resolve_model("me/model", offline=True)


def test_name_without_a_slash_never_goes_online(monkeypatch):
    monkeypatch.setattr(resolve_module.hub, "fetch_model", lambda *a, **k: pytest.fail("went online"))
    with pytest.raises(NotFound):
        resolve_model("storms")


def test_run_resolves_to_its_newest_undamaged_checkpoint(saved, tmp_path):
    for step in (1, 2):
        shutil.copytree(saved, tmp_path / "runs" / "fox" / "checkpoints" / f"step-{step}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve_model("fox").folder.name == "step-2"
    (tmp_path / "runs" / "fox" / "checkpoints" / "step-2" / "config.json").write_text("{}")
    with pytest.warns(UserWarning, match="step-2 is damaged; using step-1 instead") as caught:
        assert resolve_model("fox").folder.name == "step-1"
    assert len(caught) == 1


def test_unrelated_folder_does_not_hide_a_run(run, tmp_path):
    run("stories")
    (tmp_path / "stories").mkdir()
    assert resolve_model("stories").kind == "run"
    assert resolve_model("./stories").kind == "path"
    (tmp_path / "stories" / "config.json").touch()
    assert resolve_model("stories").kind == "path"
    (tmp_path / "poems").mkdir()
    assert resolve_model("poems").kind == "path"  # no other match; loading reports what is missing
