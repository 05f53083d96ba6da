"""`tokenize`: pieces, ids, offsets and words; no weights needed."""

import json

import pytest

import peasy
from peasy.errors import NotFound


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
