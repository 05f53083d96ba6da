"""`peasy export` from the terminal."""

from pathlib import Path

import pytest


def test_out_and_in_again_is_the_same_model(peasy, model_folder):
    assert peasy("import", model_folder, "--name", "mine").code == 0
    assert peasy("export", "mine", "there", "--to", "hf").code == 0
    assert (Path("there") / "config.json").exists()
    ours, theirs = (peasy("models", folder, "--json").json["result"] for folder in (model_folder, "there"))
    assert ours["parameters"] == theirs["parameters"]


def test_an_existing_folder_is_left_alone(peasy, model_folder):
    Path("there").mkdir()
    ran = peasy("export", model_folder, "there")
    assert ran.code in (2, 4)
    assert list(Path("there").iterdir()) == []


@pytest.mark.parametrize("to", ["pickle", "onx"])
def test_an_unknown_format(peasy, model_folder, to):
    ran = peasy("export", model_folder, "there", "--to", to)
    assert ran.code == 2
    assert "onnx" in ran.err
