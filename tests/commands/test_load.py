"""`load`: folders, names, objects of transformers; generation, embedding, devices and errors."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
import transformers

import peasy
from peasy.commands.importing import import_model
from peasy.errors import InvalidInput, NeedsNetwork, NotFound


def test_peasy_and_hugging_face_folders(decoder, foreign):
    for folder in (decoder, foreign, str(foreign)):
        loaded = peasy.load(folder)
        assert loaded.kind == "decoder"
        assert loaded.tokenizer.encode("The pizza").ids
        assert not loaded.model.training
    assert peasy.load(foreign).family == "gpt2"


def test_an_imported_model_gives_the_same_logits(foreign):
    import_model(foreign, name="mine")
    ids = torch.tensor([[5, 6, 7]])
    assert torch.allclose(peasy.load("mine").model(ids), peasy.load(foreign).model(ids), atol=1e-6)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loaded: pickle.loads(pickle.dumps(loaded))])
def test_a_model_that_has_generated_can_be_copied(decoder, copied):
    loaded = peasy.load(decoder)
    text = loaded.generate("The pizza", max_tokens=4).texts[0]
    assert loaded.packed_models
    again = copied(loaded)
    assert again.generate("The pizza", max_tokens=4).texts[0] == text
    assert loaded.generate("The pizza", max_tokens=4).texts[0] == text


def test_loading_is_logged_and_nothing_is_printed(decoder, caplog, capfd):
    with caplog.at_level("INFO", logger="peasy"):
        peasy.load(decoder).generate("The pizza", max_tokens=2)
    assert any("loading" in line and str(decoder) in line for line in caplog.messages)
    assert any("weights packed" in line for line in caplog.messages)
    assert capfd.readouterr() == ("", "")


def test_stream_equals_generate(decoder):
    loaded = peasy.load(decoder)
    whole = loaded.generate("The pizza", max_tokens=12, temperature=1.0, seed=4).texts[0]
    assert "".join(loaded.stream("The pizza", max_tokens=12, temperature=1.0, seed=4)) == whole
    assert loaded.generate("The pizza", max_tokens=12, temperature=1.0, seed=5).texts[0] != whole
    assert isinstance(loaded.generate("", max_tokens=2).texts[0], str)


def test_generate_equals_the_decode_loop(decoder):
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    loaded = peasy.load(decoder)
    ids = list(loaded.tokenizer.encode("The pizza").ids)
    expected = generate(loaded.model, [ids], SamplingParams(max_tokens=6))[0]
    assert loaded.generate("The pizza", max_tokens=6).texts[0] == loaded.tokenizer.decode(expected)


def test_embeds_one_text_or_many(encoder):
    loaded = peasy.load(encoder)
    texts = ["The pizza", "it tasted good.", "The oven", "and it came out of the oven and it tasted good, The pizza"]
    many = loaded.embed(texts).vectors
    assert many.shape == (4, 16)
    assert many.dtype == np.float32
    for text, row in zip(texts, many, strict=True):
        assert np.allclose(loaded.embed(text).vectors[0], row, atol=1e-6)
    assert np.allclose(np.linalg.norm(many, axis=1), 1)


def test_a_text_longer_than_the_context_is_truncated(encoder):
    loaded = peasy.load(encoder)
    assert np.isfinite(loaded.embed("oven " * 500).vectors).all()


def test_unsupported_operations_are_refused(decoder, encoder):
    with pytest.raises(InvalidInput, match="only an encoder embeds"):
        peasy.load(decoder).embed("x")
    with pytest.raises(InvalidInput, match="encoder cannot generate"):
        peasy.load(encoder).generate("x")
    with pytest.raises(InvalidInput, match="no text"):
        peasy.load(encoder).embed([])


def test_notebook_display_and_data(decoder):
    loaded = peasy.load(decoder)
    bundle = loaded._repr_mimebundle_()
    assert "parameters" in bundle["text/plain"]
    assert "<script" not in bundle["text/html"]
    assert loaded.describe().parameters == loaded.data()["parameters"]
    assert json.dumps(loaded.data())


def test_devices(decoder):
    assert peasy.load(decoder, device="cpu").model.device.type == "cpu"
    with pytest.raises(InvalidInput, match="no device"):
        peasy.load(decoder, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(NotFound, match="no cuda"):
            peasy.load(decoder, device="cuda")


def test_folders_and_files_without_a_model_are_refused(tmp_path, decoder):
    with pytest.raises(NotFound, match=r"no config\.json"):
        peasy.load(tmp_path)
    with pytest.raises(InvalidInput, match="is a file"):
        peasy.load(decoder / "tokenizer.json")
    with pytest.raises(NeedsNetwork):
        peasy.load("no/such", offline=True)


def test_an_unsupported_architecture_is_named_with_the_supported_ones(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(InvalidInput, match="'mamba' is not supported") as caught:
        peasy.load(tmp_path)
    assert "gpt2" in caught.value.hint


def test_a_hugging_face_model_larger_than_memory_is_refused_before_reading(foreign, monkeypatch):
    monkeypatch.setattr("peasy.checkpoint.ram.available_ram", lambda: 1000)
    with pytest.raises(peasy.PeasyError, match="needs about"):
        peasy.load(foreign)


def test_yes_permits_a_download(monkeypatch, decoder):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    downloaded = []
    monkeypatch.setattr("peasy.checkpoint.hub._download_size", lambda id: 5)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda id, **_: downloaded.append(id) or decoder)
    assert peasy.load("me/model", yes=True).name == "me/model"
    assert downloaded == ["me/model"]


def test_a_transformers_model_object(foreign, tmp_path):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(foreign).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(foreign)
    loaded = peasy.load(theirs, tokenizer=tokenizer)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids), theirs(ids).logits, atol=1e-4)
    assert list(loaded.tokenizer.encode("The pizza").ids) == tokenizer("The pizza")["input_ids"]
    assert (loaded.name, loaded.folder) == ("GPT2LMHeadModel", None)
    assert peasy.load(theirs).tokenizer is None
    with pytest.raises(InvalidInput, match="only with a transformers model"):
        peasy.load(foreign, tokenizer=tokenizer)


def test_a_run_is_hashed_once(decoder, tmp_path, monkeypatch):
    import shutil

    from peasy.checkpoint import store

    shutil.copytree(decoder, tmp_path / "runs" / "fox" / "checkpoints" / "step-3")
    hashed = []
    record = store._hash_file
    monkeypatch.setattr(store, "_hash_file", lambda folder, name: hashed.append(name) or record(folder, name))
    peasy.load("fox")
    assert sorted(hashed) == sorted(set(hashed))
    assert "model.safetensors" in hashed


def test_a_token_id_outside_the_vocabulary_is_refused(decoder, encoder, tokenizer):
    for folder, method in ((decoder, "generate"), (encoder, "embed")):
        loaded = peasy.load(folder)
        size = loaded.model.config.vocab_size
        data = loaded.tokenizer._data
        beyond = {**data["added_tokens"][0], "id": 5000, "content": "<new>"}
        larger = type(tokenizer)(data | {"added_tokens": [*data["added_tokens"], beyond]})
        object.__setattr__(loaded, "tokenizer", larger)
        with pytest.raises(InvalidInput, match=f"There is no token {size}: the vocabulary has ids 0 to {size - 1}"):
            getattr(loaded, method)("The <new> pizza")


def test_attributes_of_the_network_are_named(decoder):
    model = peasy.load(decoder)
    with pytest.raises(AttributeError, match=r"no attribute state_dict\. The network has it: \.model\.state_dict"):
        model.state_dict()
    with pytest.raises(AttributeError, match=r"no attribute nothing\.$"):
        _ = model.nothing
    assert not hasattr(model, "nothing")


def test_usual_methods_of_a_model(decoder, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    model = peasy.load(decoder)
    ids = model.tokenizer("I love").ids
    assert ids == model.tokenizer.encode("I love").ids
    again = peasy.load(model.save(tmp_path / "saved"))
    for ours, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    theirs = AutoModelForCausalLM.from_pretrained(model.save_pretrained(tmp_path / "hf")).eval()
    with torch.no_grad():
        expected = model.model(torch.tensor([list(ids)]))
        torch.testing.assert_close(theirs(torch.tensor([list(ids)])).logits, expected, atol=1e-4, rtol=0)
    assert next(again.to(dtype=torch.float64).parameters()).dtype == torch.float64
    assert next(again.to("cpu", torch.float32).parameters()).dtype == torch.float32
    assert next(again.to(dtype="bfloat16").parameters()).dtype == torch.bfloat16
    assert next(again.to(torch.float16).parameters()).dtype == torch.float16
    with pytest.raises(InvalidInput, match='no dtype "half"'):
        again.to(dtype="half")
    with pytest.raises(InvalidInput, match="torch cannot move the model there"):
        again.to("no-device")
    with pytest.raises(InvalidInput, match="A text should be a string, not list"):
        model.tokenizer(["I", "love"])


@pytest.mark.parametrize("name", ["generate", "embed", "look", "heads", "trace", "sweep", "explain_similarity"])
def test_a_method_is_documented_with_the_result_of_its_command(name):
    import inspect
    import typing
    from importlib import import_module

    method = getattr(peasy.commands.load.LoadedModel, name)
    module, command = method.__doc__.split("`")[1].rsplit(".", 1)
    returned = inspect.signature(getattr(import_module(module), command)).return_annotation
    names = [kind.__name__ for kind in typing.get_args(returned) or (returned,)]
    assert method.__annotations__["return"] == " | ".join(names)
