"""Encoding: words of a text, the word of each token, printable tokens and the byte-level alphabet."""

import pytest
from tokenizers import pre_tokenizers

from peasy.tokenization.encoding import (
    CHAR_TO_BYTE,
    Encoding,
    printable,
    split_words,
    token_to_bytes,
    token_word_ids,
)


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


def test_byte_alphabet_equals_the_library():
    assert set(CHAR_TO_BYTE) == set(pre_tokenizers.ByteLevel.alphabet())
    for byte in range(128):  # ASCII: one character of the library per byte
        [(sign, _)] = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(chr(byte))
        assert CHAR_TO_BYTE[sign] == byte


@pytest.mark.parametrize("text", ["é", "日本", "👍", " a\n\t"])
def test_bytes_roundtrip(text):
    step = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert token_to_bytes("".join(token for token, _ in step.pre_tokenize_str(text))) == text.encode()


@pytest.mark.parametrize(
    ("token", "shown"),
    [("a b", "a·b"), ("\n", "⏎"), ("\t", "⇥"), ("▁the", "·the"), ("\x00", "\\u0000"), ("##ing", "##ing")],
)
def test_plain_tokens(token, shown):
    assert printable(token) == shown
