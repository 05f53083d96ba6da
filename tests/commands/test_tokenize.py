"""`tokenize`: pieces, ids, offsets and words; no weights needed."""

import json

import pytest

import peasy
from peasy.commands.tokenize import TokenizeResult
from peasy.errors import NotFound
from peasy.tokenization.encoding import Encoding
from peasy.views.document import Table


def test_pieces_ids_offsets_words(decoder, tokenizer):
    result = peasy.tokenize(decoder, "The pizza 👍")
    assert result.encoding == tokenizer.encode("The pizza 👍")
    data = result.data()
    assert [token["id"] for token in data["tokens"]] == list(result.encoding.ids)
    assert [word["text"] for word in data["words"]] == ["The", "pizza", "👍"]
    assert json.dumps(data)


def test_tokenizer_file(decoder):
    bare = peasy.tokenize(decoder / "tokenizer.json", "The pizza")
    assert bare.encoding == peasy.tokenize(decoder, "The pizza").encoding
    assert bare.name == "tokenizer.json"


def test_table(decoder):
    shown = str(peasy.tokenize(decoder, "The pizza\n"))
    assert "⏎" in shown
    assert "·" in shown
    assert "characters" in shown


def test_long_text_is_truncated_with_a_note(decoder):
    assert "Only the first 500 of" in str(peasy.tokenize(decoder, "pizza " * 2000))


def test_no_weights_are_needed(decoder, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "tokenizer.json").write_bytes((decoder / "tokenizer.json").read_bytes())
    assert peasy.tokenize(tmp_path / "m", "pizza").encoding.ids
    (tmp_path / "m" / "tokenizer.json").unlink()
    with pytest.raises(NotFound, match="has no tokenizer"):
        peasy.tokenize(tmp_path / "m", "pizza")


def test_one_row_for_each_token(tokenizer):
    encoding = Encoding("a  b", (5, 6, 3), ("a", "··b", "<eos>"), ((0, 1), (1, 4), (0, 0)), (0, 1, None))
    document = TokenizeResult(encoding, tokenizer, "mine").document()
    [table] = [part for part in document.parts if isinstance(part, Table)]
    assert table.rows == (("0", "a", "5", "0–1", "0"), ("1", "··b", "6", "1–4", "1"), ("2", "<eos>", "3", "", ""))
    assert document.title == "a b"
    assert document.parts[0].text == "3 tokens for 2 words, 4 characters."


def test_long_titles_are_truncated(tokenizer):
    title = TokenizeResult(Encoding("word " * 100, (), (), (), ()), tokenizer, "mine").document().title
    assert 50 < len(title) <= 60
    assert title.endswith("word...")
