"""Tokenized text as a document."""

from peasy.tokenization.encoding import Encoding
from peasy.views.data import tokens_document
from peasy.views.document import Table


def test_one_row_for_each_token():
    encoding = Encoding("a  b", (5, 6, 3), ("a", "··b", "<eos>"), ((0, 1), (1, 4), (0, 0)), (0, 1, None))
    document = tokens_document(encoding, "mine", "bpe", 7)
    [table] = [part for part in document.parts if isinstance(part, Table)]
    assert table.rows == (("0", "a", "5", "0–1", "0"), ("1", "··b", "6", "1–4", "1"), ("2", "<eos>", "3", "", ""))
    assert document.title == "a b"
    assert document.parts[0].text == "3 tokens for 2 words, 4 characters."


def test_long_titles_are_truncated():
    text = "word " * 100
    encoding = Encoding(text, (), (), (), ())
    title = tokens_document(encoding, "mine", "bpe", 7).title
    assert 50 < len(title) <= 60
    assert title.endswith("word...")
