"""`models`: list of models with sizes and errors; architecture of one model; deletion."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from peasy.commands import models as command
from peasy.commands.importing import import_model
from peasy.errors import NotFound, UsageError


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
    assert (mine["name"], mine["source"], mine["model_type"]) == ("mine", "imported", "decoder")
    assert (other["name"], other["source"], other["model_type"]) == ("me/other", "hub cache", "gpt2")
    assert mine["parameters"] == command.model("mine").box.parameters
    assert command.model("mine").entry.source == "imported"
    assert mine["bytes"] == 4 * mine["parameters"]
    assert "me/other" in str(command.models())


def test_damaged_model_is_listed_with_its_error(foreign):
    folder = import_model(foreign, name="broken").folder
    (folder / "model.safetensors").write_bytes(b"x")
    [entry] = command.models().models
    assert "too short" in entry.error
    assert "cannot be used" in str(command.models())


def test_architecture_of_one_model(decoder, foreign):
    for folder in (decoder, foreign):
        result = command.model(folder)
        assert json.dumps(result.data())
        assert "attention" in str(result)
        assert result.data()["boxes"]["parameters"] == result.entry.parameters


def test_listing_reads_no_weights(foreign, monkeypatch):
    import_model(foreign, name="mine")
    monkeypatch.setattr("peasy.checkpoint.tensors.TensorFile.tensor", lambda *a: 1 / 0)
    assert len(command.models().models) == 1


def test_imported_models_are_deleted_after_confirmation(foreign):
    folder = import_model(foreign, name="mine").folder
    with pytest.raises(UsageError, match="not confirmed"):
        command.remove_model("mine")
    with pytest.raises(UsageError, match="not confirmed"):
        command.remove_model("mine", confirm=lambda question: False)
    assert folder.is_dir()
    result = command.remove_model("mine", confirm=lambda question: str(folder) in question)
    assert result.data() == {"removed": "mine", "folder": str(folder)}
    assert not command.models().models
    assert not list(folder.parent.iterdir())


def test_a_run_is_deleted_by_its_name(foreign):
    folder = import_model(foreign, name="mine").folder
    (folder / "recipe.json").write_text("{}")
    with pytest.raises(UsageError, match="Delete the run mine"):
        command.remove_model("mine")
    command.remove_model("mine", yes=True)
    assert not folder.exists()


def test_other_models_are_not_deleted(foreign, tmp_path, monkeypatch):
    built_in = tmp_path / "built-in"
    monkeypatch.setattr(command, "built_in_models", lambda: {"stories": built_in})
    with pytest.raises(UsageError, match="stories is a built-in model and cannot be deleted"):
        command.remove_model("stories", yes=True)
    monkeypatch.setattr(command, "list_cached", lambda: {"me/other": tmp_path})
    with pytest.raises(UsageError, match="Hugging Face cache"):
        command.remove_model("me/other", yes=True)
    import_model(foreign, name="mine")
    with pytest.raises(NotFound, match='No model "mime"') as caught:
        command.remove_model("mime", yes=True)
    assert "Did you mean mine?" in caught.value.hint
    for path in ("../mine", str(foreign), ".", ""):
        with pytest.raises(NotFound):
            command.remove_model(path, yes=True)
    assert foreign.is_dir()


def test_an_encoder_of_t5_embeds(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5", "architectures": ["T5EncoderModel"]}')
    save_file({"shared.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    entry = command._read_entry("st5", "cache", tmp_path)
    assert (entry.model_type, entry.capabilities[0]) == ("t5-encoder", "embed")


@pytest.mark.parametrize(
    ("model_type", "capability"),
    [("decoder", "generate"), ("gpt2", "generate"), ("bert", "embed"), ("t5", "translate"), ("words", "words")],
)
def test_entries_say_what_a_model_can_do(model_type, capability, tmp_path):
    assert command.ModelEntry("m", "run", tmp_path, model_type).capabilities[0] == capability


def test_a_model_that_cannot_be_used_has_no_capabilities(tmp_path):
    assert command.ModelEntry("m", "run", tmp_path, error="torn").capabilities == ()


def test_kinds_of_all_families():
    from peasy.checkpoint.huggingface import FAMILIES

    kinds = {name: family.kind for name, family in FAMILIES.items()}
    assert {name: kind for name, kind in kinds.items() if kind != "decoder"} == command._KIND_OF_FAMILY
