"""`models retrain`: the recipe reproduces the weights, and a card that does not match is detected."""

import json
from dataclasses import replace

import pytest
import torch

from peasy.commands.load import load
from peasy.commands.retrain import RetrainResult, retrain
from peasy.errors import NotFound


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PEASY_HOME", str(tmp_path_factory.mktemp("home")))
        return [retrain("words", run=tmp_path_factory.mktemp("runs") / "words", steps=2) for _ in range(2)]


def test_same_recipe_gives_identical_weights(again):
    first, second = ((result.folder / "model.safetensors").read_bytes() for result in again)
    assert first == second
    assert again[0].card == again[1].card


def test_shorter_run_differs_from_shipped_model(again):
    result = again[0]
    assert not result.identical
    assert not result.passed
    assert "DIFFER" in result.verdict
    assert json.dumps(result.data())


def test_metrics_within_two_percent_pass(again):
    shipped = {"metrics": {name: value * 1.01 for name, value in again[0].card["metrics"].items()}}
    near = replace(again[0], shipped_card=shipped)
    assert near.passed
    shipped["metrics"]["loss"] *= 1.02
    assert not near.passed


def test_loaded_weights_are_stored_weights_in_float32(again):
    small, trained = load(again[0].folder), load(again[0].folder.parent)
    for name, weight in small.model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, trained.model.state_dict()[name].half().float())


def test_typo_suggests_the_name(tmp_path):
    with pytest.raises(NotFound, match="No built-in") as caught:
        retrain("storys", run=tmp_path / "run")
    assert "stories" in caught.value.hint


def test_model_without_card():
    assert "is new" in RetrainResult("x", None, {"metrics": {}}, None, False).verdict
