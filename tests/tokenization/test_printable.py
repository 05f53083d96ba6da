"""Printable tokens and the byte-level alphabet."""

import pytest
from tokenizers import pre_tokenizers

from peasy.tokenization.printable import CHAR_TO_BYTE, printable, token_to_bytes


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
