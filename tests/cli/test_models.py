"""`peasy models`."""

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def test_nothing_yet(peasy, monkeypatch):
    monkeypatch.setattr("peasy.workbench.models.built_in", dict)
    ran = peasy("models")
    assert ran.code == 0
    assert "No models yet" in ran.out
    assert peasy("models", "--json").json["result"]["models"] == []


def test_the_list_and_one_of_them(peasy, tmp_path):
    save_model(tmp_path / "home" / "runs" / "quiet-fox", build(preset("gpt-tiny", d_model=16)))
    assert "quiet-fox" in peasy("models").out
    assert "attention" in peasy("models", "quiet").out
    result = peasy("models", "quiet-fox", "--json").json["result"]
    assert result["is"] == "decoder"
    assert result["boxes"]["parameters"] == result["parameters"]


def test_a_typo(peasy, tmp_path):
    save_model(tmp_path / "home" / "runs" / "quiet-fox", build(preset("gpt-tiny", d_model=16)))
    ran = peasy("models", "quite-fox")
    assert ran.code == 3
    assert ran.err == '✗ No model "quite-fox".\n  Did you mean quiet-fox? See all: peasy models\n'


def test_what_comes_with_peasy(peasy):
    assert "stories" in peasy("models").out
    told = peasy("models", "stories")
    assert told.code == 0
    assert "peasy train gpt --data stories" in " ".join(told.out.split())


def test_retrain_needs_the_name_of_a_built_in(peasy):
    assert peasy("models", "retrain", "storys").code != 0
    ran = peasy("models", "stories", "words")
    assert "one model" in ran.err
