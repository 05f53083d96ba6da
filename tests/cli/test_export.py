"""`peasy export`."""

import pytest

from peasy.checkpoint.model import save_model
from peasy.models.build import build
from peasy.models.preset import preset


@pytest.fixture
def model(tmp_path):
    return save_model(tmp_path / "mine", build(preset("llama-tiny", d_model=48, vocab_size=40)))


def test_hugging_face_folder(peasy, model, tmp_path):
    result = peasy("export", model, "out", "--json").json["result"]
    assert {file["name"] for file in result["files"]} == {"config.json", "model.safetensors"}
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nope", "out"], 3, 'No model "nope"'),
        (["mine", "mine"], 4, "never overwrites"),
        (["mine", "out", "--format", "onx"], 2, "onnx"),
        (["mine", "out", "--dtype", "f16"], 2, "Only gguf"),
    ],
)
def test_errors(peasy, model, words, code, message):
    ran = peasy("export", *words)
    assert ran.code == code
    assert message in ran.err
