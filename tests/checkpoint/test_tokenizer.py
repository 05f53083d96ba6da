import io
import json

import pytest

from peasy.checkpoint.folder import Folder
from peasy.checkpoint.tokenizer import read_target_tokenizer, read_tokenizer
from peasy.errors import InvalidInput


def test_beside_the_weights(folder, tokenizer):
    found = read_tokenizer(Folder(folder))
    assert found.encode("The pizza").ids == tokenizer.encode("The pizza").ids
    assert found.special == tokenizer.special
    assert read_target_tokenizer(Folder(folder)) is None


def test_none_at_all(tmp_path):
    assert read_tokenizer(Folder(tmp_path)) is None


def test_a_tokenizer_that_leads_out_of_the_folder(tmp_path, folder):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    with pytest.raises(InvalidInput, match="leaves its folder"):
        read_tokenizer(Folder(tmp_path / "bad"))


def test_errors_name_the_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"tokenizer\.json: It is not a tokenizer"):
        read_tokenizer(Folder(tmp_path))


def test_marian_s_two_files(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece", reason="the other road needs the extra hf")
    texts = ["the pizza came out of the oven", "la pizza sort du four", "three days ago", "il y a trois jours"] * 30
    for name, chosen in (("source", texts[0::2]), ("target", texts[1::2])):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(chosen), model_writer=out, vocab_size=60, hard_vocab_limit=False, minloglevel=2
        )
        (tmp_path / f"{name}.spm").write_bytes(out.getvalue())
    library = {
        name: sentencepiece.SentencePieceProcessor(str(tmp_path / f"{name}.spm")) for name in ("source", "target")
    }
    pieces = sorted({each.id_to_piece(i) for each in library.values() for i in range(len(each))} - {"<s>"})
    vocabulary = {piece: id for id, piece in enumerate([*pieces, "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    found = {"source": read_tokenizer(Folder(tmp_path)), "target": read_target_tokenizer(Folder(tmp_path))}
    for name, tokenizer in found.items():
        assert len(tokenizer) == len(vocabulary)
        for text in ("the pizza, trois", "il y a three ovens", "xyz", "La Pizza"):
            pieces = library[name].encode(text, out_type=str)
            assert tokenizer.ids([text], special=False) == [
                [vocabulary.get(each, vocabulary["<unk>"]) for each in pieces]
            ]
    assert found["target"].decode(found["source"].encode("the pizza came").ids) == "the pizza came"
