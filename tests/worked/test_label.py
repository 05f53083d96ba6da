"""Token labels."""

import pytest

from peasy.worked.label import MAX_LABEL_LENGTH, token_label


@pytest.mark.parametrize(
    "token", ["\x1b[31mred", "\x9b31m", "a\x00b", "\u202eabc", "\u2066x", "line\nend", "\u2028", "\x7f"]
)
def test_control_characters_are_replaced(token):
    assert token_label(token).isprintable()


@pytest.mark.parametrize("token", ["I", "<eos>", "é", "日本", "👩‍👩‍👧", "שלום", "[red]"])
def test_words_are_unchanged(token):
    assert token_label(token) == token


def test_long_labels_are_cut():
    assert len(token_label("a" * 10_000)) == MAX_LABEL_LENGTH
    assert token_label("a" * MAX_LABEL_LENGTH) == "a" * MAX_LABEL_LENGTH
