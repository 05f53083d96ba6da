"""`peasy export`."""

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset


@pytest.fixture
def model(tmp_path):
    return save_model(tmp_path / "mine", build(preset("llama-tiny", d_model=48, vocabulary=40)))


def test_a_folder_for_transformers(peasy, model, tmp_path):
    told = peasy("export", model, "out", "--json").json
    assert {file["name"] for file in told["result"]["files"]} == {"config.json", "model.safetensors"}
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nope", "out"], 3, 'No model "nope"'),
        (["mine", "mine"], 4, "never overwrites"),
        (["mine", "out", "--to", "onx"], 2, "onnx"),
        (["mine", "out", "--numbers", "f16"], 2, "Only gguf"),
    ],
)
def test_errors(peasy, model, words, code, said):
    ran = peasy("export", *words)
    assert ran.code == code
    assert said in ran.err
