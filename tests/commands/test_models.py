"""`models`: list of models with sizes and errors; architecture of one model."""

import json
import shutil

import pytest

from peasy.commands import models as command
from peasy.commands.importing import import_model


@pytest.fixture(autouse=True)
def _no_built_in(monkeypatch):
    monkeypatch.setattr(command, "built_in_models", dict)


def test_empty_list():
    assert command.models().data()["models"] == []
    assert "peasy import" in str(command.models())


def test_runs_and_hub_cache_with_sizes(foreign, tmp_path):
    import_model(foreign, name="mine")
    model = tmp_path / "hub" / "models--me--other"
    shutil.copytree(foreign, model / "snapshots" / "abc")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    mine, other = command.models().data()["models"]
    assert (mine["name"], mine["where"], mine["is"]) == ("mine", "run", "decoder")
    assert (other["name"], other["where"], other["is"]) == ("me/other", "hub cache", "gpt2")
    assert mine["parameters"] == command.model("mine").box.parameters
    assert mine["bytes"] == 4 * mine["parameters"]
    assert "me/other" in str(command.models())


def test_damaged_model_is_listed_with_its_error(foreign):
    folder = import_model(foreign, name="broken").folder
    (folder / "model.safetensors").write_bytes(b"x")
    [card] = command.models().models
    assert "too short" in card.error
    assert "cannot be used" in str(command.models())


def test_architecture_of_one_model(decoder, foreign):
    for folder in (decoder, foreign):
        found = command.model(folder)
        assert json.dumps(found.data())
        assert "attention" in str(found)
        assert found.data()["boxes"]["parameters"] == found.entry.parameters


def test_listing_reads_no_weights(foreign, monkeypatch):
    import_model(foreign, name="mine")
    monkeypatch.setattr("peasy.checkpoint.tensors.TensorFile.tensor", lambda *a: 1 / 0)
    assert len(command.models().models) == 1
