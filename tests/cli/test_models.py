"""`peasy models` and its subcommands."""

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "home"


@pytest.fixture
def saved_model(home):
    return save_model(home / "runs" / "quiet-fox", build(preset("gpt-tiny", d_model=16)))


def test_no_models(peasy, monkeypatch):
    monkeypatch.setattr("peasy.commands.models.built_in_models", dict)
    ran = peasy("models")
    assert ran.code == 0
    assert "No models yet" in ran.out
    assert peasy("models", "--json").json["result"]["models"] == []


def test_bare_command_lists_and_a_name_shows(peasy, saved_model):
    assert "quiet-fox" in peasy("models").out
    assert peasy("models").out == peasy("models", "list").out
    assert "attention" in peasy("models", "quiet").out
    assert peasy("models", "quiet-fox").out == peasy("models", "show", "quiet-fox").out
    shown = peasy("models", "show", "quiet-fox", "--json").json
    assert shown["command"] == "models show"
    assert shown["result"]["model_type"] == "decoder"
    assert shown["result"]["boxes"]["parameters"] == shown["result"]["parameters"]


def test_flags_may_stand_before_the_subcommand(peasy, saved_model):
    assert peasy("--json", "models", "-q", "show", "quiet-fox").json["command"] == "models show"
    assert peasy("models", "--json", "quiet-fox").json["result"]["name"] == "quiet-fox"


def test_typo(peasy, saved_model):
    for words in (("quite-fox",), ("show", "quite-fox"), ("rm", "quite-fox")):
        ran = peasy("models", *words)
        assert ran.code == 3
        assert ran.err == '✗ No model "quite-fox".\n  Did you mean quiet-fox? See all: peasy models\n'


def test_built_in_models(peasy):
    assert "stories" in peasy("models").out
    ran = peasy("models", "stories")
    assert ran.code == 0
    assert "peasy train gpt --data stories" in " ".join(ran.out.split())


def test_rm_asks_first(peasy, saved_model):
    assert peasy("models", "rm", "quiet-fox").code == 2
    assert saved_model.is_dir()
    assert peasy("models", "rm", "quiet-fox", "--yes").code == 0
    assert not saved_model.exists()


def test_rm_refuses_built_in_models(peasy):
    ran = peasy("models", "rm", "stories", "--yes")
    assert ran.code == 2
    assert "built-in" in ran.err
    assert "stories" in peasy("models").out


def test_retrain_needs_a_built_in_model(peasy):
    assert peasy("models", "retrain", "storys").code != 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "models show needs NAME."),
        (["rm"], "models rm needs NAME."),
        (["retrain"], "models retrain needs NAME."),
        (["stories", "words"], 'models has no subcommand "words"'),
        (["show", "stories", "words"], 'models show: unexpected argument "words"'),
        (["show", "stories", "--run", "x"], "models show has no flag --run"),
    ],
)
def test_usage_errors(peasy, words, message):
    ran = peasy("models", *words)
    assert ran.code == 2
    assert message in ran.err
