"""`import`: Hugging Face folders become checkpoints under a name; never in place of another."""

import io
import json

import pytest
import sentencepiece
import torch
import transformers

import peasy
from peasy.checkpoint.paths import data_dir
from peasy.checkpoint.store import is_intact, read_checkpoint
from peasy.errors import InvalidInput, UsageError


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
    monkeypatch.setattr("peasy.commands.importing.open_resolved", lambda resolved: pytest.fail("the model was loaded"))
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
    assert loaded.generate(text, max_tokens=8) == loaded.target_tokenizer.decode(expected)
