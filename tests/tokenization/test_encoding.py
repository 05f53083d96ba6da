"""Encoding: words of a text, and the word of each token."""

import pytest

from peasy.tokenization.encoding import Encoding, split_words, token_word_ids


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's hot!", ["It's", "hot", "!"]),
        ("l’été, déjà", ["l’été", ",", "déjà"]),
        ("  ", []),
        ("3.5 %", ["3", ".", "5", "%"]),
        ("snake_case", ["snake_case"]),
    ],
)
def test_split_words(text, words):
    assert [text[start:end] for start, end in split_words(text)] == words


def test_word_ids_of_tokens():
    text = "low lower, \n"
    assert token_word_ids(text, [(0, 3), (3, 7), (7, 9), (9, 10), (10, 12), (0, 0)]) == (0, 1, 1, 2, None, None)


def test_word_groups_are_in_order():
    found = Encoding("a b", (1, 2, 3), ("a", "·b", "<eos>"), ((0, 1), (1, 3), (0, 0)), (0, 1, None))
    assert found.word_groups() == [("a", (0,)), ("b", (1,))]
    assert len(found) == 3
