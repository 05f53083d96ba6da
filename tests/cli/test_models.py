"""`peasy models`."""

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def test_no_models(peasy, monkeypatch):
    monkeypatch.setattr("peasy.commands.models.built_in", dict)
    ran = peasy("models")
    assert ran.code == 0
    assert "No models yet" in ran.out
    assert peasy("models", "--json").json["result"]["models"] == []


def test_list_and_description(peasy, tmp_path):
    save_model(tmp_path / "home" / "runs" / "quiet-fox", build(preset("gpt-tiny", d_model=16)))
    assert "quiet-fox" in peasy("models").out
    assert "attention" in peasy("models", "quiet").out
    result = peasy("models", "quiet-fox", "--json").json["result"]
    assert result["is"] == "decoder"
    assert result["boxes"]["parameters"] == result["parameters"]


def test_typo(peasy, tmp_path):
    save_model(tmp_path / "home" / "runs" / "quiet-fox", build(preset("gpt-tiny", d_model=16)))
    ran = peasy("models", "quite-fox")
    assert ran.code == 3
    assert ran.err == '✗ No model "quite-fox".\n  Did you mean quiet-fox? See all: peasy models\n'


def test_built_in_models(peasy):
    assert "stories" in peasy("models").out
    ran = peasy("models", "stories")
    assert ran.code == 0
    assert "peasy train gpt --data stories" in " ".join(ran.out.split())


def test_retrain_needs_a_built_in_model(peasy):
    assert peasy("models", "retrain", "storys").code != 0
    ran = peasy("models", "stories", "words")
    assert "one model" in ran.err
