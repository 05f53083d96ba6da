"""`import`: Hugging Face folders become checkpoints under a name; never in place of another."""

import io
import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers

import peasy
from peasy.checkpoint.paths import data_dir
from peasy.checkpoint.store import is_intact, read_checkpoint
from peasy.cli.app import run
from peasy.errors import InvalidInput, NotFound, UsageError


def test_a_folder_becomes_a_checkpoint_under_a_name(foreign):
    result = peasy.import_model(foreign, name="mine")
    assert result.folder == data_dir() / "runs" / "mine"
    assert is_intact(result.folder)
    assert read_checkpoint(result.folder).manifest.notes == {"source": "tiny-gpt2", "family": "gpt2"}
    assert result.data()["parameters"] == peasy.load("mine").model.count_parameters()
    assert "tiny-gpt2" in str(result)


def test_the_default_name_is_that_of_the_folder(foreign):
    assert peasy.import_model(foreign).name == "tiny-gpt2"


def test_an_existing_run_is_never_overwritten(foreign, monkeypatch):
    peasy.import_model(foreign, name="mine")
    monkeypatch.setattr(
        "peasy.commands.importing.open_model", lambda *args, **kwargs: pytest.fail("the model was loaded")
    )
    with pytest.raises(InvalidInput, match="never overwrites"):
        peasy.import_model(foreign, name="mine")


def test_invalid_names_are_refused(foreign):
    with pytest.raises(UsageError, match="is not a valid name"):
        peasy.import_model(foreign, name="../evil")


def test_a_peasy_checkpoint_can_be_imported(decoder):
    result = peasy.import_model(decoder, name="again")
    assert result.model.tokenizer is not None
    assert is_intact(result.folder)


def test_a_marian_translator_has_both_tokenizers(tmp_path):
    """A Marian folder has no tokenizer.json but two SentencePiece files and one vocabulary."""
    texts = ["the pizza came out of the oven", "la pizza sort du four", "three days ago", "il y a trois jours"] * 30
    folder, pieces = tmp_path / "opus-mt-xx", set()
    folder.mkdir()
    for name, chosen in (("source", texts[0::2]), ("target", texts[1::2])):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(chosen), model_writer=out, vocab_size=60, hard_vocab_limit=False, minloglevel=2
        )
        (folder / f"{name}.spm").write_bytes(out.getvalue())
        library = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
        pieces |= {library.id_to_piece(i) for i in range(len(library))}
    vocabulary = {
        piece: id for id, piece in enumerate(["</s>", "<unk>", *sorted(pieces - {"</s>", "<unk>", "<s>"}), "<pad>"])
    }
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    padding = vocabulary["<pad>"]
    settings = transformers.MarianConfig(
        vocab_size=len(vocabulary), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
        pad_token_id=padding, eos_token_id=0, decoder_start_token_id=padding, forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.MarianMTModel(settings).eval()
    theirs.save_pretrained(folder)
    loaded = peasy.load(peasy.import_model(folder).name)
    text = "the pizza came three days ago"
    ids = torch.tensor([loaded.tokenizer.encode_batch_ids([text])[0]])
    with torch.no_grad():
        expected = theirs.generate(ids, max_new_tokens=8, num_beams=1, do_sample=False)[0, 1:].tolist()
    assert loaded.generate(text, max_tokens=8).texts[0] == loaded.target_tokenizer.decode(expected)


@pytest.fixture
def copied(foreign, tmp_path):
    """A copy of the folder that a test may change."""
    return Path(shutil.copytree(foreign, tmp_path / "copied"))


def encoder_for_questions(tmp_path):
    config = transformers.BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    config.intermediate_size = 32
    transformers.BertForQuestionAnswering(config).save_pretrained(tmp_path / "questions")
    return tmp_path / "questions"


def test_an_unknown_head_is_ignored_on_request_and_listed(tmp_path):
    folder = encoder_for_questions(tmp_path)
    with pytest.raises(InvalidInput, match="BertForQuestionAnswering") as error:
        peasy.import_model(folder)
    assert "--ignore-extra" in error.value.hint
    result = peasy.import_model(folder, ignore_extra=True)
    assert set(result.model.unused_weights) == {"qa_outputs.weight", "qa_outputs.bias"}
    assert "qa_outputs.weight" in str(result)


def test_extra_weights_are_refused_with_the_flag_that_ignores_them(copied):
    from safetensors.torch import load_file, save_file

    weights = load_file(copied / "model.safetensors") | {"v_head.summary.weight": torch.ones(1, 8)}
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match=r"v_head\.summary\.weight") as error:
        peasy.import_model(copied)
    assert "--ignore-extra" in error.value.hint
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"welcome": "hello"}))
    result = peasy.import_model(copied, ignore_extra=True)
    assert result.model.unused_weights == ("v_head.summary.weight",)
    assert result.data()["unused"] == ["v_head.summary.weight", "config.json: welcome"]


def test_a_config_without_a_model_type_asks_for_the_family(copied):
    config = json.loads((copied / "config.json").read_text())
    with pytest.raises(InvalidInput, match="says 'gpt2', not 'bert'"):
        peasy.import_model(copied, as_="bert")
    config = {name: value for name, value in config.items() if name not in ("model_type", "architectures")}
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="no model_type") as error:
        peasy.import_model(copied)
    assert "--as bert" in error.value.hint
    assert peasy.import_model(copied, as_="gpt2").model.family == "gpt2"


@pytest.mark.parametrize("shards", [1, 2])
def test_the_lines_that_convert_a_pickle_file_work(copied, shards):
    """They read all shards, and not the trainer's state beside them."""
    from safetensors.torch import load_file

    weights = list(load_file(copied / "model.safetensors").items())
    (copied / "model.safetensors").unlink()
    for shard in range(shards):
        name = f"pytorch_model-{shard + 1:05}-of-{shards:05}.bin" if shards > 1 else "pytorch_model.bin"
        torch.save(dict(weights[shard::shards]), copied / name)
    torch.save({"state": {}}, copied / "optimizer.pt")
    with pytest.raises(InvalidInput, match=r"stores its weights in pytorch_model.*\.bin: a pickle file") as error:
        peasy.import_model(copied)
    assert "weights_only=True" in error.value.script
    exec(error.value.script, {})
    assert {name: tensor.tolist() for name, tensor in load_file(copied / "model.safetensors").items()} == {
        name: tensor.tolist() for name, tensor in weights
    }
    assert peasy.import_model(copied).model.family == "gpt2"


def test_the_lines_that_convert_a_pickle_file_can_be_copied_from_the_terminal(copied, capsys):
    """They stand at the margin: indented, Python would refuse them. A trainer's file nests and prefixes the weights."""
    from safetensors.torch import load_file

    weights = {f"module.{name}": tensor for name, tensor in load_file(copied / "model.safetensors").items()}
    torch.save({"state_dict": weights, "epoch": 3}, copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    assert run(["import", str(copied)]) == 4
    lines = capsys.readouterr().err.splitlines()
    code = "\n".join(lines[lines.index("import pathlib, torch") :])
    assert run(["import", str(copied), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"]["script"] == code
    exec(compile(code, "copied", "exec"), {})
    assert peasy.import_model(copied).model.family == "gpt2"


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("notes.txt", "holds config.json and model.safetensors"),
        ("adapter_config.json", "merge it with peft"),
        ("model.gguf", "written, not read"),
        ("tf_model.h5", "TensorFlow"),
        ("inner/config.json", "inner"),
    ],
)
def test_a_folder_that_is_not_a_model_says_what_to_do(tmp_path, file, hint):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("{}")
    with pytest.raises(NotFound, match=r"it has no config\.json") as error:
        peasy.import_model(tmp_path)
    assert hint in error.value.hint


def test_a_file_of_a_model_leads_to_its_folder(copied, tmp_path):
    with pytest.raises(InvalidInput, match="is a file, not a model") as error:
        peasy.import_model(copied / "model.safetensors")
    assert error.value.hint == f"Give its folder: {copied}"
    (tmp_path / "model.gguf").write_text("")
    with pytest.raises(InvalidInput, match="is a file, not a model") as error:
        peasy.import_model(tmp_path / "model.gguf")
    assert "written, not read" in error.value.hint


@pytest.mark.parametrize("kind", ["gptq", "awq", "bitsandbytes"])
def test_quantised_weights_are_refused_with_the_way_out(copied, kind):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": kind}}))
    with pytest.raises(InvalidInput, match=rf"{kind}.*import the original model.*dequantize"):
        peasy.import_model(copied)


def test_fields_without_effect_are_allowed(copied):
    """`is_decoder` is true in configs of decoders that transformers has saved; dropout changes no result."""
    config = json.loads((copied / "config.json").read_text())
    extra = {"is_decoder": True, "dropout": 0.3, "class_weights": [1.0, 2.0]}
    (copied / "config.json").write_text(json.dumps(config | extra))
    assert peasy.import_model(copied).model.unused_fields == ()


@pytest.mark.parametrize("source", ["owner/model@v1", "not a hub id"])
def test_a_revision_needs_a_hub_id_without_one(source, copied):
    for given in (source, copied):
        with pytest.raises(UsageError, match="is not a hub id without a revision"):
            peasy.import_model(given, revision="v2")
