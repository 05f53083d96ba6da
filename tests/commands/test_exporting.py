"""`export`: Hugging Face folders, GGUF and ONNX; refusals before the model is loaded."""

import pytest
import torch
import transformers

import peasy
from peasy.errors import InvalidInput, UsageError


def test_an_exported_folder_gives_the_same_logits_in_transformers(foreign, tmp_path):
    peasy.import_model(foreign, name="mine")
    result = peasy.export_model("mine", tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = peasy.load("mine")
    text = "The pizza came out of the oven 👍"
    ids = list(ours.tokenizer.encode(text).ids)
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.pad_token == "<pad>"
    with torch.no_grad():
        difference = (theirs(torch.tensor([ids])).logits - ours.model(torch.tensor([ids]))).abs().max()
    assert difference < 1e-4
    assert {name for name, _ in result.files} >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_a_chat_template_is_exported(foreign, tmp_path):
    loaded = peasy.load(foreign)
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with_template = type(loaded.tokenizer)(loaded.tokenizer._data, {"chat_template": template})
    object.__setattr__(loaded, "tokenizer", with_template)
    peasy.export_model(loaded, tmp_path / "out")
    assert peasy.load(tmp_path / "out").tokenizer.chat_template == template


def test_onnx(foreign, tmp_path):
    peasy.export_model(foreign, tmp_path / "out", format="onnx")
    assert (tmp_path / "out" / "model.onnx").stat().st_size > 1000


@pytest.mark.parametrize("dtype", [None, "f32"])
def test_gguf(foreign, tmp_path, dtype):
    result = peasy.export_model(foreign, tmp_path / "out", format="gguf", dtype=dtype)
    assert dict(result.files)["model.gguf"] > 1000


def test_bad_arguments_are_refused_before_the_model_is_loaded(foreign, tmp_path, monkeypatch):
    monkeypatch.setattr("peasy.commands.exporting.load", lambda resolved: pytest.fail("the model was loaded"))
    with pytest.raises(UsageError, match='no format "onx"') as caught:
        peasy.export_model(foreign, tmp_path / "out", format="onx")
    assert caught.value.hint == "Did you mean onnx?"
    with pytest.raises(UsageError, match="Only gguf"):
        peasy.export_model(foreign, tmp_path / "out", dtype="f16")
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInput, match="never overwrites"):
        peasy.export_model(foreign, tmp_path / "out")


def test_a_model_without_a_hugging_face_family_is_refused(tmp_path):
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset

    save_model(tmp_path / "rnn", build(preset("rnn-tiny", d_model=8)))
    with pytest.raises(InvalidInput, match="No Hugging Face family supports"):
        peasy.export_model(tmp_path / "rnn", tmp_path / "out")
    assert not (tmp_path / "out").exists()
